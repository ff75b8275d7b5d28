//! ntp-lab
