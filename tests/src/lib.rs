//! ntp-tests
