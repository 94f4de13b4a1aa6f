//! `refundd completions` and `refundd man`: what a shell and `man` know of the commands, made from the same definitions as
//! `--help`.
//!
//! The commands read no configuration.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap_complete::Shell;
use clap_mangen::Man;

const COMPLETIONS_HELP: &str = "\
bash: refundd completions bash > /usr/share/bash-completion/completions/refundd
zsh: refundd completions zsh > /usr/share/zsh/site-functions/_refundd
fish: refundd completions fish > /usr/share/fish/vendor_completions.d/refundd.fish";

#[derive(Debug, clap::Args)]
#[command(after_help = COMPLETIONS_HELP)]
pub(super) struct Args {
    /// The shell
    shell: Shell,
}

#[derive(Debug, clap::Args)]
pub(super) struct ManArgs {
    /// Write a page for refundd and one for each command into this folder, and print nothing
    #[arg(long, value_name = "FOLDER")]
    to: Option<PathBuf>,
}

pub(super) fn completions(args: &Args, mut tree: clap::Command) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut tree, "refundd", &mut script);
    print!("{}", String::from_utf8(script)?);
    Ok(ExitCode::SUCCESS)
}

pub(super) fn man(args: &ManArgs, tree: clap::Command) -> anyhow::Result<ExitCode> {
    if let Some(folder) = &args.to {
        std::fs::create_dir_all(folder)
            .and_then(|()| clap_mangen::generate_to(tree.clone(), folder))
            .with_context(|| format!("failed to write the pages to {}", folder.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut page = Vec::new();
    // As in the written pages: `help` needs no page of its own.
    Man::new(tree.disable_help_subcommand(true)).render(&mut page)?;
    print!("{}", String::from_utf8(page)?);
    Ok(ExitCode::SUCCESS)
}
