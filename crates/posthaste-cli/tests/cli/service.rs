//! What the service manager is told.

use std::os::unix::net::UnixDatagram;

use crate::support::{Bed, Running};

#[test]
fn the_service_manager_hears_of_the_beginning_the_life_and_the_end() {
    let bed = Bed::new();
    let socket = UnixDatagram::bind(bed.path("notify")).unwrap();
    socket.set_read_timeout(Some(std::time::Duration::from_secs(55))).unwrap();
    let mut command = bed.command(&["relay", "--to", "null"]);
    command.env("NOTIFY_SOCKET", bed.path("notify")).env("WATCHDOG_USEC", "100000");
    command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped());
    let relay = Running::of(command.stderr(std::process::Stdio::piped()).spawn().unwrap());
    let next = || {
        let mut buffer = [0; 1024];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    };
    assert_eq!(next(), "READY=1\n");
    let until = |wished: &str| while next() != wished {};
    until("STATUS=running\n");
    until("WATCHDOG=1\n");
    until("WATCHDOG=1\n");
    relay.signal("TERM");
    until("STOPPING=1\nSTATUS=stopping\n");
    assert_eq!(relay.end().0, Some(0));
}
