//! Whether stdout leads anywhere.

use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat, major, minor};

use crate::failure::note;

/// Checks that stdout can be written, and says so if it is the null device: what is written there counts as published.
///
/// A stdout that was closed by whoever started the process looks like a null device, because the language's start-up
/// opens one in its place. One that is open for reading only would take everything without an error.
pub(crate) fn check_stdout() -> Result<(), String> {
    let stdout = std::io::stdout();
    let broken = |error: rustix::io::Errno| format!("stdout cannot be used: {error}");
    let mode = fcntl_getfl(&stdout).map_err(broken)? & OFlags::RWMODE;
    if mode == OFlags::RDONLY {
        return Err("stdout is open for reading only".to_owned());
    }
    let file = fstat(&stdout).map_err(broken)?;
    let is_device = FileType::from_raw_mode(file.st_mode) == FileType::CharacterDevice;
    if is_device && (major(file.st_rdev), minor(file.st_rdev)) == (1, 3) && mode == OFlags::RDWR {
        note("warning: stdout is closed or the null device: messages written there count as published");
    }
    Ok(())
}
