//! The configuration: a file, the environment and the command line, the later of which goes before the earlier.
//!
//! The options of the command line are what is known about settings: their names, values, defaults and variables. A
//! file's values ([`file`]) are checked by the options that they stand for ([`layer`]), and become their defaults, so
//! that nothing is said twice. [`keys`] says which key of the file is which option; [`effective`] prints what results.

mod effective;
mod file;
mod keys;
mod layer;
mod nearest;
mod outlets;
mod sources;

use std::path::PathBuf;

use clap::{ArgMatches, Command};

use self::file::File;
use self::outlets::Outlets;
use crate::failure::Failure;

pub(crate) use self::effective::print;
pub(crate) use self::nearest::nearest;
pub(crate) use self::outlets::DestinationArgs;
pub(crate) use self::sources::{Sourced, Sources};

/// Parses the command line `arguments`, with the values of the file that it or the environment names, if any.
pub(crate) fn parse(
    command: &Command,
    arguments: &[std::ffi::OsString],
) -> Result<(ArgMatches, Sources), Trouble> {
    let matches = command.clone().try_get_matches_from(arguments).map_err(Trouble::Usage)?;
    let Some(path) = matches.get_one::<PathBuf>("config").filter(|path| !path.as_os_str().is_empty()) else {
        let outlets = Outlets::of(&[], &matches).map_err(Trouble::File)?;
        let sources = Sources::of(&matches, &[], outlets);
        return Ok((matches, sources));
    };
    let file = File::read(path).map_err(Trouble::File)?;
    let entries = file.entries().map_err(Trouble::File)?;
    let given = layer::check(&file, &entries, command).map_err(Trouble::File)?;
    let command = layer::with_defaults(command.clone(), &given);
    let matches = command.try_get_matches_from(arguments).map_err(Trouble::Usage)?;
    let outlets = Outlets::of(&entries, &matches).map_err(Trouble::File)?;
    let sources = Sources::of(&matches, &given, outlets);
    Ok((matches, sources))
}

/// What can be wrong.
pub(crate) enum Trouble {
    /// The command line, or the environment.
    Usage(clap::Error),
    /// The file, or what stands in place of a part of it.
    File(Failure),
}
