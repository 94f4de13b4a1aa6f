//! The thin binary: parse, run the command, turn the result into an exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    refundd::cli::main()
}
