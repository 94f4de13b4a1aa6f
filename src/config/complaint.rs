//! The faults of a configuration file, in the form that its operator reads.
//!
//! All faults are listed at once, because five starts for five faults would cost five deployments.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// The reason why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file does not exist or may not be read.
    #[error("read the configuration file `{}`", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The file is being written.
    #[error(
        "the configuration file `{}` changed while it was read, so it may be half written; write the new file beside it, rename \
         that one to its name, and reload again",
        path.display()
    )]
    Changing { path: PathBuf },
    /// The file was read and has faults.
    #[error("{}", listed(file, complaints))]
    Refused {
        file: String,
        /// In the order of the file. Complaints without a place in the file come last.
        complaints: Vec<Complaint>,
    },
}

/// One fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complaint {
    /// The file; `None` when the fault is elsewhere, for example in the environment.
    pub file: Option<String>,
    /// Line and column, from 1; the column counts characters. `None` for a key or section that the file leaves out.
    pub place: Option<(usize, usize)>,
    /// The faulty field or section, for example ``field `channel.acme.timeout` = "20m"``.
    pub subject: String,
    /// The broken requirement, and a way to keep it.
    pub requirement: String,
    /// The faulty line of a file that is not TOML, with a `^` below the fault; secrets are hidden.
    pub quote: Option<String>,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{file}:")?;
            if let Some((line, column)) = self.place {
                write!(f, "{line}:{column}:")?;
            }
            f.write_str(" ")?;
        }
        write!(f, "{}: {}", self.subject, self.requirement)?;
        if let (Some(quote), Some((line, _))) = (&self.quote, self.place) {
            let margin = line.to_string().len();
            for (number, text) in quote.lines().enumerate() {
                let gutter = if number == 0 { line.to_string() } else { " ".repeat(margin) };
                write!(f, "\n  {gutter} | {text}")?;
            }
        }
        Ok(())
    }
}

fn listed(file: &str, complaints: &[Complaint]) -> String {
    let count = match complaints.len() {
        1 => "1 fault".to_owned(),
        many => format!("{many} faults"),
    };
    let complaints: Vec<String> = complaints.iter().map(ToString::to_string).collect();
    format!(
        "{count} in the configuration `{file}`:
{}",
        complaints.join(
            "
"
        )
    )
}
