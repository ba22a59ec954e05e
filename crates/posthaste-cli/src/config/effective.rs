//! What results of file, environment and command line, as a file again, without secrets.

use std::io;

use clap::{ArgAction, Command};

use super::keys::KEYS;
use super::outlets::{Outlets, destination_keys};
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
        let shown = if key.option == "serve" { list(&value.text) } else { shown(&value.text, is_switch) };
        output.line(format_args!("{} = {shown}  # {}", key.name, value.source.as_str()))?;
    }
    print_outlets(output, &sources.outlets)
}

fn print_outlets(output: &mut Output, outlets: &Outlets) -> io::Result<()> {
    for destination in &outlets.destinations {
        output.line(format_args!("\n[destinations.{}]", quoted_key(&destination.name)))?;
        for key in destination_keys() {
            let Some(value) = destination.sources.get(&key) else { continue };
            let is_switch = ["mandatory", "persistent"].contains(&&*key);
            let shown = shown(&value.text, is_switch);
            output.line(format_args!("{key} = {shown}  # {}", value.source.as_str()))?;
        }
    }
    for route in &outlets.routes {
        output.line("\n[[routes]]")?;
        for (key, value) in [("event_type", &route.event_type), ("aggregate_type", &route.aggregate_type)] {
            if let Some(value) = value {
                output.line(format_args!("{key} = {}", quoted(value)))?;
            }
        }
        output.line(format_args!("to = {}", quoted(&route.to)))?;
    }
    Ok(())
}

/// A value as TOML has it, without passwords.
fn shown(text: &str, is_switch: bool) -> String {
    let text = redact(text);
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_switch || is_number { text } else { quoted(&text) }
}

fn list(text: &str) -> String {
    format!("[{}]", text.split(',').map(quoted).collect::<Vec<_>>().join(", "))
}

/// A name as TOML has it.
fn quoted_key(name: &str) -> String {
    if name.contains('.') { quoted(name) } else { name.to_owned() }
}

/// A text as TOML has it.
fn quoted(text: &str) -> String {
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
