// Drives a server with the types that openapi-typescript generates from the served document.
//
// Usage: node scenario.js URL API_KEY

import assert from "node:assert/strict";
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

const [baseUrl, apiKey] = process.argv.slice(2);
const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${apiKey}` } });
const key = "order:typescript-client";
const state = { number: 8, line_cents: [100, 200], pay_within_s: 3600 };

// Fields with a default may be left out.
const body: components["schemas"]["NewInstance"] = { machine: "order", step: "Placed", key, state };
const started = await client.POST("/v1/instances", { body });
assert(started.data?.created, JSON.stringify(started.error));
const id = started.data.id;

const taken = await client.POST("/v1/instances", { body });
assert.equal(taken.error?.type, "urn:dormouse:problem:key-taken");
assert.equal(taken.error?.holder, id);

const byId = { path: { instance: String(id) } };
const misspelt = await client.POST("/v1/instances/{instance}/signals", { params: byId, body: { name: "paymant" } });
assert.equal(misspelt.error?.nearest, "payment");
assert(misspelt.error?.accepts?.includes("approval"));

const byKey = { path: { instance: `key:${key}` } };
const payment = { name: "payment", payload: { cents: 300 }, dedup_key: "payment-1" };
for (const expected of ["accepted", "duplicate"] as const) {
    const delivered = await client.POST("/v1/instances/{instance}/signals", { params: byKey, body: payment });
    assert.equal(delivered.data?.delivered, expected);
}

const waits = { params: { ...byKey, query: { wait: "30s" } } };
const result = await client.GET("/v1/instances/{instance}/result", waits);
const status: components["schemas"]["Status"] = "done";
assert.equal(result.data?.status, status);

const history = await client.GET("/v1/instances/{instance}/history", { params: byId });
const kinds = history.data?.items.map((event) => event.kind) ?? [];
assert.deepEqual([kinds.at(0), kinds.at(-1)], ["created", "done"]);

const first = await client.GET("/v1/instances", { params: { query: { limit: 1 } } });
const second = await client.GET("/v1/instances", { params: { query: { limit: 1, cursor: first.data?.next } } });
assert((first.data?.items[0]?.id ?? 0) > (second.data?.items[0]?.id ?? 0));

const open = await client.GET("/v1/interactions", { params: { query: { status: "pending", machine: "refund" } } });
const asked = open.data?.items[0];
assert(asked);
const completed = await client.POST("/v1/interactions/{interaction}/complete", {
    params: { path: { interaction: String(asked.id) } },
    body: { output: { approved: true } },
});
assert(completed.data?.woke);
