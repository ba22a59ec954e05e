//! Tables of what was found: on stderr, and for `./test --faults` in files.

use std::io::Write as _;

/// Whether everything is to be tried, and not only what fits in every run of the tests.
pub(crate) fn is_whole() -> bool {
    std::env::var_os("POSTHASTE_TEST_FAULTS").is_some()
}

/// Prints a table, and adds it to the file of this name in the directory of `POSTHASTE_TEST_FAULTS_REPORT`, if given.
pub(crate) fn table(name: &str, title: &str, head: &[&str], rows: &[Vec<String>]) {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..head.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let padded: Vec<_> =
            cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        format!("| {} |\n", padded.join(" | "))
    };
    let rule: Vec<_> = widths.iter().map(|width| "-".repeat(*width)).collect();
    let mut text = format!("### {title}\n\n");
    text += &line(head.to_vec());
    text += &line(rule.iter().map(String::as_str).collect());
    for row in rows {
        text += &line(row.iter().map(String::as_str).collect());
    }
    eprintln!("{text}");
    if let Some(directory) = std::env::var_os("POSTHASTE_TEST_FAULTS_REPORT") {
        let path = std::path::Path::new(&directory).join(format!("{name}.md"));
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        file.write_all(format!("{text}\n").as_bytes()).unwrap();
    }
}
