//! ntp-record
