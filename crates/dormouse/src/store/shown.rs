//! Addresses as they may be shown: in a log, an error, a page.

/// Parameters of an address that are not secret.
const PLAIN: [&str; 10] = [
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "sslmode",
    "ssl-mode",
    "application_name",
    "connections",
    "patience_ms",
];

/// An address without its secrets, for logs and errors: the user, the password, and the value of every parameter that
/// is not known to be harmless are left out. If the secrets cannot be located, only the scheme is left.
///
/// ```
/// let shown = dormouse::store::shown("postgres://ann:secret@db/shop?password=secret&sslmode=require");
/// assert_eq!(shown, "postgres://db/shop?password=…&sslmode=require");
/// ```
pub fn shown(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        let may_hold_one = url.contains('@') || url.contains("password");
        return if may_hold_one && !url.starts_with("sqlite:") { "…".to_owned() } else { url.to_owned() };
    };
    let (place, query) = rest.split_once('?').map_or((rest, None), |(place, query)| (place, Some(query)));
    // A password may hold what usually ends it.
    if query.is_some_and(|query| query.contains('@')) {
        return format!("{scheme}://…");
    }
    let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
    let query =
        query.map(|query| format!("?{}", query.split('&').map(parameter).collect::<Vec<_>>().join("&")));
    format!("{scheme}://{place}{}", query.unwrap_or_default())
}

fn parameter(text: &str) -> String {
    match text.split_once('=') {
        Some((name, _)) if PLAIN.contains(&name) => text.to_owned(),
        Some((name, _)) => format!("{name}=…"),
        None => "…".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_of_an_address_is_shown_wherever_it_is_in_it() {
        for url in [
            "postgres://ann:hunter2@db/shop",
            "postgres://ann:hunter2@db/shop?sslmode=require",
            "postgres://ann@db/shop?password=hunter2",
            "postgres://ann@db/shop?sslpassword=hunter2&host=db",
            "postgres://ann@db/shop?passfile=x&pass%77ord=hunter2",
            "postgres://ann:x@db/shop?password=a@hunter2",
            "postgres://ann:a?hunter2@db/shop",
            "postgres://ann:a/hunter2@db/shop",
            "postgres://ann:a#hunter2@db/shop",
            "postgres://ann:x@hunter2@db/shop",
            "postgres://db/shop?hunter2",
            "https://hunter2@host/",
            "ann:hunter2@db",
            "host=db password=hunter2",
        ] {
            let told = shown(url);
            assert!(!told.contains("hunter2"), "{url} is shown as {told}");
        }
    }

    #[test]
    fn what_helps_is_shown() {
        assert_eq!(shown("postgres://ann:x@db:5433/shop"), "postgres://db:5433/shop");
        assert_eq!(
            shown("postgres:///shop?host=/run&connections=4"),
            "postgres:///shop?host=/run&connections=4"
        );
        assert_eq!(shown("sqlite:a@b.db"), "sqlite:a@b.db");
        assert_eq!(shown("shop.db"), "shop.db");
    }
}
