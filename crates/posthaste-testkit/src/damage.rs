//! Input that is nearly right: for tests of everything that is parsed.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Pieces of which damage is made: what parsers stumble over.
const PIECES: &[&[u8]] = &[
    b"\0",
    b"\"",
    b"\\",
    b"\\u0000",
    b"\\ud800",
    b"{",
    b"}",
    b"{{",
    b"[",
    b"]",
    b":",
    b",",
    b"=",
    b"/",
    b"//",
    b"@",
    b"?",
    b"&",
    b"#",
    b"%",
    b"%00",
    b"%ff",
    b"%2F",
    b"-",
    b"-1",
    b"0",
    b"1e999",
    b"18446744073709551616",
    b"null",
    b"true",
    b".",
    b"..",
    b"*",
    b"'",
    b"`",
    b" ",
    b"\n",
    b"\r",
    b"\t",
    b"\x1b[2J",
    b"\xff",
    b"\xc3",
    "é".as_bytes(),
    "\u{202e}".as_bytes(),
    "🦀".as_bytes(),
    "\u{feff}".as_bytes(),
];

/// Tries a test on valid inputs and on many that are damaged: cut, doubled, mixed, and sprinkled with what parsers stumble
/// over. `POSTHASTE_TEST_DAMAGED` says how many (default: 3,000); they are the same in every run.
///
/// # Panics
/// When the test does; the input is printed.
pub fn damaged(valid: &[&str], test: impl Fn(&[u8])) {
    let count =
        std::env::var("POSTHASTE_TEST_DAMAGED").ok().and_then(|count| count.parse().ok()).unwrap_or(3_000);
    let mut random = fastrand::Rng::with_seed(0x00da_3a9e);
    for whole in valid {
        try_on(&test, whole.as_bytes());
    }
    for _ in 0..count {
        try_on(&test, &one(valid, &mut random));
    }
}

/// The same for what is parsed as text.
///
/// # Panics
/// When the test does; the input is printed.
pub fn damaged_text(valid: &[&str], test: impl Fn(&str)) {
    damaged(valid, |bytes| test(&String::from_utf8_lossy(bytes)));
}

fn try_on(test: &impl Fn(&[u8]), input: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| test(input))) {
        eprintln!("the input was \"{}\"", input.escape_ascii());
        resume_unwind(panic);
    }
}

fn one(valid: &[&str], random: &mut fastrand::Rng) -> Vec<u8> {
    let whole =
        |random: &mut fastrand::Rng| random.choice(valid).copied().unwrap_or_default().as_bytes().to_vec();
    let mut text = whole(random);
    for _ in 0..random.usize(1..5) {
        let (at, other) = (random.usize(0..=text.len()), random.usize(0..=text.len()));
        let (from, to) = (at.min(other), at.max(other));
        match random.u8(0..7) {
            0 => text.truncate(at),
            1 => drop(text.drain(from..to.min(from + 8))),
            2 => {
                let twice = text[from..to].to_vec();
                text.splice(to..to, twice);
            }
            3 => {
                let end = whole(random);
                text.truncate(at);
                text.extend(end.into_iter().skip(other));
            }
            4 if at < text.len() => text[at] = random.u8(..),
            _ => {
                drop(text.splice(at..at, random.choice(PIECES).copied().unwrap_or_default().iter().copied()));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::collections::HashSet;

    #[test]
    fn inputs_are_many_and_a_panic_comes_through() {
        let seen = RefCell::new(HashSet::new());
        super::damaged(&["a valid text", "another"], |input| {
            seen.borrow_mut().insert(input.to_vec());
        });
        assert!(seen.borrow().len() > 1_000, "{} different ones", seen.borrow().len());
        let count = Cell::new(0);
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            super::damaged_text(&["x"], |_| {
                count.set(count.get() + 1);
                assert!(count.get() < 10);
            });
        }));
        assert!(caught.is_err());
    }
}
