//! `screen COLUMNSxLINES SECONDS PROGRAM ARGUMENT... > SVG`: what a program's terminal shows after that time.
//!
//! The program runs on a pseudo-terminal; then this types `q`, and waits for its end.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [size, seconds, program @ ..] = &arguments[..] else { return usage() };
    let Some((columns, lines)) = size.split_once('x') else { return usage() };
    if program.is_empty() {
        return usage();
    }
    let (columns, lines) = (columns.parse()?, lines.parse()?);
    print!("{}", picture(columns, lines, Duration::try_from_secs_f64(seconds.parse()?)?, program)?);
    Ok(())
}

fn usage() -> Result<()> {
    Err("usage: screen COLUMNSxLINES SECONDS PROGRAM ARGUMENT... > SVG".into())
}

fn picture(columns: u16, lines: u16, after: Duration, program: &[String]) -> Result<String> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let slave = ioctl_tiocgptpeer(&master, flags)?;
    tcsetwinsize(&master, Winsize { ws_row: lines, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 })?;
    let mut command = Command::new("setsid");
    command.arg("--ctty").args(program).env("TERM", "xterm-256color");
    command.stdin(Stdio::from(slave.try_clone()?)).stdout(Stdio::from(slave));
    let mut process = command.spawn()?;
    // It holds copies of the slave's descriptor, and the output would not end.
    drop(command);
    let screen = Arc::new(Mutex::new(vt100::Parser::new(lines, columns, 0)));
    let (mut output, shown) = (File::from(master.try_clone()?), Arc::clone(&screen));
    let reader = std::thread::spawn(move || {
        let mut octets = [0; 4096];
        // An error: the process has ended.
        while let Ok(read @ 1..) = output.read(&mut octets) {
            shown.lock().unwrap_or_else(PoisonError::into_inner).process(&octets[..read]);
        }
    });
    std::thread::sleep(after);
    let picture = warpline_pictures::screen::svg(
        screen.lock().unwrap_or_else(PoisonError::into_inner).screen(),
    );
    File::from(master).write_all(b"q")?;
    let status = process.wait()?;
    // It has printed why it panicked.
    let _ = reader.join();
    if status.success() { Ok(picture) } else { Err(format!("the program: {status}").into()) }
}
