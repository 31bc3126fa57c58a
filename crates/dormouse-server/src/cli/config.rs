//! `config`: the settings, and where each comes from.

use serde_json::json;

use super::Globals;
use super::output::{Output, items, line, table, text};
use super::run::Serve;

pub(super) fn config(globals: &Globals, output: Output, args: &Serve) {
    let settings = args.over(&globals.settings);
    let shown = settings.shown().map(|setting| {
        json!({
            "name": setting.known.name, "value": setting.value, "from": setting.origin,
            "env": setting.known.env, "about": setting.known.about,
        })
    });
    let value = json!({ "settings": shown.collect::<Vec<_>>() });
    output.show(&value, |value| {
        let row = |setting: &_| ["name", "value", "from", "env"].map(|member| text(setting, member)).to_vec();
        let rows: Vec<_> = items(value, "settings").map(row).collect();
        table(&["SETTING", "VALUE", "FROM", "ENVIRONMENT"], &rows, "");
        line("\nWhere the defaults of worker, retention and limits hold, a program may set others in its code.");
    });
}
