//! Interactions: listing, claiming and answering them.

use dormouse::store::Scope;
use serde_json::{Value, json};

use crate::kit::*;

suite![
    an_interaction_is_listed_claimed_and_answered,
    an_interaction_tells_the_deadline_of_its_unit,
    an_interaction_is_listed_for_whom_it_is_asked_of_and_tells_who_answered,
    an_answer_is_admitted_once_and_a_repeat_is_told_the_first,
    a_failure_is_an_answer_too,
    an_answer_that_does_not_fit_is_a_problem_that_names_the_place,
    a_batch_of_answers_tells_for_each_what_became_of_it,
    what_names_no_interaction_is_told_so,
    another_namespaces_interaction_is_as_if_it_did_not_exist,
    interactions_are_listed_a_page_at_a_time,
];

impl Site {
    /// Starts a review that waits for somebody's answer, and returns its id and its interaction's.
    pub(crate) async fn review(&self, what: &str) -> (i64, i64) {
        let body = json!({ "machine": "review", "step": "Ask", "state": { "what": what } });
        let id = self.post("/v1/instances", body).await.expect(201)["id"].as_i64().expect("an id");
        let open = loop {
            let page = self.get(&format!("/v1/interactions?instance={id}")).await.expect(200);
            if let Some(open) = page["items"][0]["id"].as_i64() {
                break open;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        };
        (id, open)
    }

    pub(crate) async fn outcome(&self, id: i64) -> Value {
        self.get(&format!("/v1/instances/{id}/result?wait=30s")).await.expect(200)
    }
}

async fn an_interaction_is_listed_claimed_and_answered(database: Database) {
    let site = database.open().await;
    let (id, open) = site.review("a menu").await;
    let shown = site.get(&format!("/v1/interactions/{open}")).await.expect(200);
    assert_eq!((&shown["status"], &shown["request"]), (&json!("pending"), &json!("a menu")));
    let claim = |who: &str| json!({ "assignee": who, "seconds": 600 });
    let path = |verb: &str| format!("/v1/interactions/{open}/{verb}");
    assert_eq!(site.post(&path("claim"), claim("ada")).await.expect(200)["assignee"], "ada");
    let taken = site.post(&path("claim"), claim("bob")).await.expect_problem(409, "completion-refused");
    assert!(taken["detail"].as_str().expect("text").starts_with("ada has claimed it"), "{taken}");
    let yes = |who: Value| json!({ "output": true, "assignee": who });
    let refused = site.post(&path("complete"), yes(json!("bob"))).await;
    assert_eq!(refused.expect_problem(409, "completion-refused")["reason"], "claimed");
    assert_eq!(site.get("/v1/interactions?assignee=ada").await.expect(200)["items"][0]["id"], open);
    let admitted = site.post(&path("complete"), yes(json!("ada"))).await.expect(200);
    assert_eq!(admitted, json!({ "completed": "admitted", "woke": true }));
    assert_eq!(site.outcome(id).await["output"], true);
}

async fn an_interaction_tells_the_deadline_of_its_unit(database: Database) {
    let site = database.open().await;
    let (id, open) = site.review("a menu").await;
    let unit = site.get(&format!("/v1/instances/{id}")).await.expect(200)["wake_at"].clone();
    let deadline = unit.as_str().expect("it has a deadline");
    assert_eq!(site.get(&format!("/v1/interactions/{open}")).await.expect(200)["deadline"], deadline);
    assert_eq!(site.get("/v1/interactions").await.expect(200)["items"][0]["deadline"], deadline);
    for page in ["/inbox".to_owned(), format!("/inbox/{open}")] {
        let shown = site.browser().page(&page).await;
        assert!(shown.contains(&format!("datetime=\"{deadline}\"")), "{shown}");
    }
}

async fn an_interaction_is_listed_for_whom_it_is_asked_of_and_tells_who_answered(database: Database) {
    let mut site = database.with_keys().await;
    let key = site.key("default", Scope::Operate).await;
    site.set_key(&key);
    let (_, menu) = site.review("a menu").await;
    let (_, wine) = site.review("a wine list").await;
    let listed =
        async |query: &str| site.get(&format!("/v1/interactions?{query}")).await.expect(200)["items"].clone();
    let chefs = listed("group=critics&assignee=chef").await;
    assert_eq!((&chefs[0]["id"], &chefs[1]["id"]), (&json!(menu), &json!(wine)));
    assert_eq!((&chefs[0]["for_assignee"], &chefs[0]["for_group"]), (&json!("chef"), &json!("critics")));
    assert_eq!(listed("group=cooks").await, json!([]));
    assert_eq!(listed("assignee=critics").await, json!([]));
    let path = |id: i64, verb: &str| format!("/v1/interactions/{id}{verb}");
    site.post(&path(menu, "/complete"), json!({ "output": true, "assignee": "ada" })).await.expect(200);
    assert_eq!(site.get(&path(menu, "")).await.expect(200)["answered_by"], "ada");
    site.post(&path(wine, "/fail"), json!({ "reason": "it is in Greek" })).await.expect(200);
    let by = site.get(&path(wine, "")).await.expect(200)["answered_by"].clone();
    assert!(by.as_str().expect("the caller").contains("dmk_"), "without a name, the caller is noted: {by}");
    let browser = site.signed_in(&key).await;
    let (_, bill) = site.review("a bill").await;
    for filter in ["", "?assignee=chef", "?group=critics"] {
        let page = browser.page(&format!("/inbox{filter}")).await;
        assert!(page.contains("a bill") && page.contains("chef, critics"), "{page}");
    }
    assert!(browser.page("/inbox?group=cooks").await.contains("No questions."));
    assert!(browser.page(&format!("/inbox/{bill}")).await.contains("chef, critics"));
    assert!(browser.page(&format!("/inbox/{menu}")).await.contains("Answered by"));
}

async fn an_answer_is_admitted_once_and_a_repeat_is_told_the_first(database: Database) {
    let site = database.open().await;
    let (_, open) = site.review("a menu").await;
    let path = format!("/v1/interactions/{open}/complete");
    site.post(&path, json!({ "output": true })).await.expect(200);
    let repeat = site.post(&path, json!({ "output": false })).await.expect(200);
    assert_eq!(repeat, json!({ "completed": "repeat", "woke": false, "output": true }));
}

async fn a_failure_is_an_answer_too(database: Database) {
    let site = database.open().await;
    let (id, open) = site.review("a menu").await;
    site.post(&format!("/v1/interactions/{open}/fail"), json!({ "reason": "it is in Greek" }))
        .await
        .expect(200);
    let ended = site.outcome(id).await;
    assert_eq!(ended["status"], "failed");
    assert!(ended["error"].as_str().expect("a reason").contains("it is in Greek"), "{ended}");
}

async fn an_answer_that_does_not_fit_is_a_problem_that_names_the_place(database: Database) {
    let site = database.open().await;
    let (id, open) = site.survey().await;
    let path = format!("/v1/interactions/{open}/complete");
    for (output, place) in [(json!({ "stars": 6 }), "at /stars: "), (json!(5), "at the top: ")] {
        let refused =
            site.post(&path, json!({ "output": output })).await.expect_problem(422, "output-refused");
        assert_eq!(refused["reason"], "schema");
        assert!(refused["detail"].as_str().expect("text").contains(place), "{refused}");
    }
    let refused = site.post(&path, json!({ "output": { "stars": 0 } })).await;
    let refused = refused.expect_problem(422, "output-refused");
    assert_eq!(refused["reason"], "projection");
    assert!(refused["detail"].as_str().expect("text").contains("nobody is that bad"), "{refused}");
    assert_eq!(site.get(&format!("/v1/interactions/{open}")).await.expect(200)["status"], "pending");
    site.post(&path, json!({ "output": { "stars": 4 } })).await.expect(200);
    assert_eq!(site.outcome(id).await["output"], json!("ann gives 4"));
}

async fn a_batch_of_answers_tells_for_each_what_became_of_it(database: Database) {
    let site = database.open().await;
    let (survey, guest) = site.survey().await;
    let (menu, asked) = site.review("a menu").await;
    let (wine, failed) = site.review("a wine list").await;
    let answers = json!([
        { "interaction": guest, "output": { "stars": 9 } },
        { "interaction": asked, "output": true },
        { "interaction": failed, "error": "it is in Greek" },
        { "interaction": asked, "output": false },
        { "interaction": 4711, "output": true },
        { "interaction": "correlation:nobody's", "output": true },
        { "interaction": guest, "output": { "stars": 2 } },
    ]);
    let told = site.post("/v1/interactions/batch", json!({ "answers": answers })).await.expect(200);
    let told = told["results"].as_array().expect("a result for each");
    assert_eq!(told[0]["reason"], "schema");
    assert!(told[0]["detail"].as_str().expect("text").contains("at /stars: "), "{told:?}");
    assert_eq!(told[1], json!({ "completed": "admitted", "woke": true }));
    assert_eq!(told[2], json!({ "completed": "admitted", "woke": true }));
    assert_eq!(told[3], json!({ "completed": "repeat", "woke": false, "output": true }));
    assert_eq!((&told[4]["reason"], &told[5]["reason"]), (&json!("unknown"), &json!("unknown")));
    assert_eq!(told[6], json!({ "completed": "admitted", "woke": true }));
    assert_eq!(site.outcome(survey).await["output"], "ann gives 2");
    assert_eq!(site.outcome(menu).await["output"], true);
    assert_eq!(site.outcome(wine).await["status"], "failed");
}

async fn what_names_no_interaction_is_told_so(database: Database) {
    let site = database.open().await;
    site.get("/v1/interactions/99").await.expect_problem(404, "not-found");
    site.get("/v1/interactions/soup").await.expect_problem(400, "invalid-request");
    site.post("/v1/interactions/99/complete", json!({})).await.expect_problem(404, "not-found");
    site.post("/v1/interactions/correlation:x/fail", json!({ "reason": "?" }))
        .await
        .expect_problem(404, "not-found");
    let claim = json!({ "assignee": "ada", "seconds": 1 });
    site.post("/v1/interactions/99/claim", claim).await.expect_problem(404, "not-found");
    site.post("/v1/interactions/99/complete", json!({ "outptu": 1 }))
        .await
        .expect_problem(400, "invalid-request");
    site.get("/v1/interactions?status=lost").await.expect_problem(400, "invalid-request");
}

async fn another_namespaces_interaction_is_as_if_it_did_not_exist(database: Database) {
    let mut site = database.with_keys().await;
    let (ours, theirs) = (site.key("default", Scope::Operate).await, site.key("other", Scope::Operate).await);
    site.set_key(&ours);
    let (_, open) = site.review("a menu").await;
    site.set_key(&theirs);
    site.get(&format!("/v1/interactions/{open}")).await.expect_problem(404, "not-found");
    let answer = json!({ "output": true });
    site.post(&format!("/v1/interactions/{open}/complete"), answer).await.expect_problem(404, "not-found");
    let claim = json!({ "assignee": "eve", "seconds": 600 });
    site.post(&format!("/v1/interactions/{open}/claim"), claim).await.expect_problem(404, "not-found");
    assert_eq!(site.get("/v1/interactions").await.expect(200)["items"], json!([]));
}

async fn interactions_are_listed_a_page_at_a_time(database: Database) {
    let site = database.open().await;
    let mut opened = Vec::new();
    for what in ["a", "b", "c"] {
        opened.push(site.review(what).await.1);
    }
    let page = site.get("/v1/interactions?status=pending&limit=2").await.expect(200);
    let next = page["next"].as_str().expect("there are more");
    let rest = site.get(&format!("/v1/interactions?status=pending&limit=2&cursor={next}")).await.expect(200);
    let ids = |page: &Value| -> Vec<i64> {
        page["items"]
            .as_array()
            .expect("items")
            .iter()
            .map(|item| item["id"].as_i64().expect("an id"))
            .collect()
    };
    assert_eq!([ids(&page), ids(&rest)].concat(), opened);
    assert_eq!(rest["next"], Value::Null);
}
