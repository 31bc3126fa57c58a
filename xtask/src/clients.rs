//! Clients of other languages: validates the served OpenAPI document, generates a client in Python and one in TypeScript
//! from it, and drives a server with each.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use crate::shop::{self, Shop, dormouse, make_key};
use crate::{Result, root, run, tools};

/// What the generators and the scenarios are made of.
const DIR: &str = "xtask/clients";

/// The generators.
pub(crate) struct Generators {
    python: PathBuf,
    node: PathBuf,
}

/// The generators, or why they are not available. Nothing else depends on them.
pub(crate) fn fetched() -> Result<Generators> {
    let node = tools::node("clients-node", DIR)?;
    let python = tools::python("clients-python", "xtask/clients/requirements.txt")?;
    Ok(Generators { python, node })
}

/// `cargo xtask clients`.
pub(crate) fn alone() -> Result {
    test(&fetched()?)
}

pub(crate) fn test(generators: &Generators) -> Result {
    shop::build()?;
    let dir = root().join("target/clients").join(std::process::id().to_string());
    fs::create_dir_all(&dir).map_err(|error| format!("cannot make {}: {error}", dir.display()))?;
    let tested = tested_in(&dir, generators);
    // Leftovers are removed with the rest of `target`.
    let _ = fs::remove_dir_all(&dir);
    tested
}

fn tested_in(dir: &Path, Generators { python, node }: &Generators) -> Result {
    let db = format!("sqlite:{}", dir.join("shop.db").display());
    run(&mut dormouse(&["--db", &db, "migrate"]))?;
    let key = make_key(&db)?;
    let shop = Shop::open(&db)?;
    let document = dir.join("openapi.json");
    let fetch = "import sys, urllib.request; urllib.request.urlretrieve(sys.argv[1], sys.argv[2])";
    let address = format!("{}/openapi.json", shop.url);
    run(Command::new(python).args(["-c", fetch, &address]).arg(&document))?;
    run(Command::new(python).args(["-m", "openapi_spec_validator"]).arg(&document))?;
    in_python(dir, python, &document, &[&shop.url, &key])?;
    in_typescript(node, &document, &[&shop.url, &key])
}

fn in_python(dir: &Path, python: &Path, document: &Path, arguments: &[&str]) -> Result {
    let mut generate = Command::new(python);
    generate.args([
        "-m",
        "openapi_python_client",
        "generate",
        "--meta",
        "none",
        "--fail-on-warning",
        "--path",
    ]);
    generate.arg(document).arg("--output-path").arg(dir.join("dormouse_client"));
    // It formats what it writes with a program beside its Python.
    let beside = python.parent().into_iter().map(Path::to_owned);
    let path = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths(beside.chain(env::split_paths(&path))).map_err(|error| error.to_string())?;
    run(generate.env("PATH", path).current_dir(dir))?;
    let scenario = root().join(DIR).join("scenario.py");
    run(Command::new(python).arg(scenario).args(arguments).env("PYTHONPATH", dir))
}

fn in_typescript(node: &Path, document: &Path, arguments: &[&str]) -> Result {
    for file in ["scenario.ts", "tsconfig.json"] {
        tools::write(&node.join(file), &tools::read(&root().join(DIR).join(file))?)?;
    }
    let program = |file: &str| {
        let mut command = Command::new("node");
        command.arg(node.join(file)).current_dir(node);
        command
    };
    let schema = "schema.d.ts";
    run(program("node_modules/openapi-typescript/bin/cli.js").arg(document).args(["--output", schema]))?;
    run(program("node_modules/typescript/bin/tsc").args(["--project", "."]))?;
    run(program("scenario.js").args(arguments))
}
