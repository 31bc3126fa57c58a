//! Going to an instance by its id or its key, from anywhere.

use dormouse::{InstanceId, Target};

use super::Answered;
use super::fields::query;
use super::visit::Visit;

/// The page of the instance that has this id or key; if there is none, the list of those whose key starts like this.
pub(super) async fn to(visit: Visit) -> Answered {
    let Some(name) = visit.query.get("to") else { return visit.go("/instances") };
    let number = name.strip_prefix('#').unwrap_or(name).parse::<i64>().ok();
    let by_id = number.map(|id| Target::Id(InstanceId(id)));
    let by_key = Target::Key(name.strip_prefix("key:").unwrap_or(name).to_owned());
    for target in by_id.into_iter().chain([by_key]) {
        if let Some(found) = visit.client.head(target).await? {
            return visit.go(&format!("/instances/{}", found.id));
        }
    }
    visit.go(&format!("/instances{}", query("key", name)))
}
