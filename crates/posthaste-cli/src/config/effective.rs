//! What results of file, environment and command line, as a file again, without secrets.

use std::io;

use clap::{ArgAction, Command};

use super::keys::KEYS;
use super::sources::Sources;
use crate::database::redact;
use crate::output::Output;

/// Prints every setting with where it comes from. What has no value is a comment.
pub(crate) fn print(output: &mut Output, command: &Command, sources: &Sources) -> io::Result<()> {
    let relay = command.find_subcommand("relay").into_iter().flat_map(Command::get_arguments);
    let options: Vec<_> = command.get_arguments().chain(relay).collect();
    let mut table = "";
    for key in KEYS {
        if key.table != table {
            output.line(format_args!("{}[{}]", if table.is_empty() { "" } else { "\n" }, key.table))?;
            table = key.table;
        }
        let Some(value) = sources.get(key.option) else {
            output.line(format_args!("# {} is not set", key.name))?;
            continue;
        };
        let is_switch = options
            .iter()
            .any(|option| option.get_id() == key.option && matches!(option.get_action(), ArgAction::SetTrue));
        let text = redact(&value.text);
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let shown = if is_switch || is_number { text } else { quoted(&text) };
        output.line(format_args!("{} = {shown}  # {}", key.name, value.source.as_str()))?;
    }
    Ok(())
}

/// A text as TOML has it.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            letter if letter.is_control() => quoted.extend(format!("\\u{:04X}", u32::from(letter)).chars()),
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}
