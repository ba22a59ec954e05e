//! Confirmed publishes a second, against lapin alone.

fn main() {}
