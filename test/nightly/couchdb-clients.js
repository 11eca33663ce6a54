/**
 * Uses a gateway by the clients of CouchDB's users, which are told nothing but URLs with a password.
 * Prints one line of JSON for each fact: `{ "fact": "...", "holds": true }`.
 *
 * node couchdb-clients.js <directory of the packages> <gateway's URL> <database> <another>
 */
import { createRequire } from "node:module";
import path from "node:path";

const [packages = "", gateway = "", database = "", other = ""] = process.argv.slice(2);
const require = createRequire(path.join(packages, "package.json"));
const nano = require("nano");
const PouchDB = require("pouchdb-core")
  .plugin(require("pouchdb-adapter-memory"))
  .plugin(require("pouchdb-adapter-http"))
  .plugin(require("pouchdb-replication"))
  .plugin(require("pouchdb-mapreduce"))
  .plugin(require("pouchdb-find").default ?? require("pouchdb-find"));

const urlFor = (user) => {
  const url = new URL(gateway);
  url.username = user;
  url.password = `${user} password`;
  return url.href.replace(/\/$/, "");
};
const remote = (user, name = database) => new PouchDB(`${urlFor(user)}/${name}`);
const local = (name) => new PouchDB(`${name}-${process.pid}`, { adapter: "memory" });

function say(fact, holds, found) {
  const line = { fact, holds, found: holds ? undefined : String(found) };
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

async function statusOf(promise) {
  try {
    await promise;
    return 200;
  } catch (error) {
    return error.statusCode ?? error.status ?? String(error);
  }
}

async function expect(fact, status, promise) {
  const found = await statusOf(promise);
  say(fact, found === status, found);
}

async function withNano() {
  const as = (user) => nano(urlFor(user)).use(database);
  const writer = as("writer");
  const { rev } = await writer.insert({ n: 1 }, "by-nano");
  await writer.insert({ _id: "by-nano", _rev: rev, n: 2 });
  await writer.insert({ n: 3 }, "with/slash");
  await writer.bulk({ docs: [{ _id: "bulk-1" }, { _id: "bulk-2" }] });
  await writer.attachment.insert("attached", "a/b c.txt", "text", "text/plain");
  const attached = await writer.attachment.get("attached", "a/b c.txt");
  say("nano reads an attachment", attached.toString() === "text", attached);
  const found = await writer.find({ selector: { n: { $gt: 2 } } });
  say("nano finds documents", found.docs.length === 1, JSON.stringify(found));
  await expect("nano lists documents", 200, writer.list({ include_docs: true }));
  await expect("nano fetches documents by keys", 200, writer.fetch({ keys: ["by-nano"] }));
  await expect("nano follows changes", 200, writer.changes({ limit: 1 }));
  await expect("nano tells of the database", 200, writer.info());
  await expect("nano's head of a document", 200, writer.head("by-nano"));
  const { _rev: last } = await writer.get("bulk-1");
  await expect("nano destroys a document", 200, writer.destroy("bulk-1", last));
  const design = { views: { all: { map: "function (doc) { emit(doc._id); }" } } };
  await expect("nano is refused a design document", 403, writer.insert(design, "_design/no"));
  const builder = as("builder");
  await expect("nano stores a design document", 200, builder.insert(design, "_design/yes"));
  await expect("nano queries a view", 200, writer.view("yes", "all", { limit: 1 }));
  await expect("nano queries a view by keys", 200, writer.view("yes", "all", { keys: ["a"] }));
  await expect("nano creates an index", 200, builder.createIndex({ index: { fields: ["n"] } }));
  const reader = as("reader");
  await expect("nano reads a document", 200, reader.get("by-nano"));
  await expect("nano is refused a change", 403, reader.insert({ n: 1 }, "no"));
  await expect("nano is refused another database", 403, nano(urlFor("reader")).use(other).info());
  const names = await nano(urlFor("reader")).db.list();
  say("nano lists one database", names.join() === database, names);
  const session = await nano(urlFor("reader")).session();
  say("nano is told the user", session.userCtx.name === "reader", JSON.stringify(session));
}

const finished = (replication) =>
  new Promise((resolve, reject) => replication.on("complete", resolve).on("error", reject));

async function withPouch() {
  const source = local("source");
  await source.bulkDocs(Array.from({ length: 250 }, (_, n) => ({ _id: `pouch-${n}`, n })));
  const pushed = await finished(source.replicate.to(remote("writer"), { batch_size: 100 }));
  say("PouchDB pushes", pushed.ok && pushed.docs_written === 250, JSON.stringify(pushed));
  const doc = await source.get("pouch-1");
  const data = Buffer.from("attached").toString("base64");
  await source.put({ ...doc, _attachments: { "a.txt": { content_type: "text/plain", data } } });
  await source.remove(await source.get("pouch-2"));
  const more = await finished(source.replicate.to(remote("writer")));
  say("PouchDB pushes a deletion and an attachment", more.docs_written === 2, JSON.stringify(more));

  const target = local("target");
  const pulled = await finished(target.replicate.from(remote("reader")));
  say("PouchDB pulls as a reader", pulled.ok && pulled.docs_written > 249, JSON.stringify(pulled));
  const text = await target.getAttachment("pouch-1", "a.txt");
  say("PouchDB pulls an attachment", text.toString() === "attached", text);
  const again = await finished(target.replicate.from(remote("reader")));
  say("a reader goes on from its checkpoint", again.docs_read === 0, JSON.stringify(again));

  await target.put({ _id: "pouch-back" });
  const refused = await finished(target.replicate.to(remote("reader"))).catch((error) => error);
  const missing = await statusOf(remote("writer").get("pouch-back"));
  const isRefused = missing === 404;
  say("PouchDB pushes nothing as a reader", isRefused, `${missing} ${JSON.stringify(refused)}`);
  await finished(target.sync(remote("writer")));
  await expect("PouchDB syncs as a writer", 200, remote("reader").get("pouch-back"));

  await target.put({ _id: "_design/pouch", language: "javascript" });
  const partly = await finished(target.replicate.to(remote("writer"))).catch((error) => error);
  const design = await statusOf(remote("reader").get("_design/pouch"));
  say("a design document of a writer stays out", design === 404, `${design} ${partly}`);
  await finished(target.replicate.to(remote("builder")));
  await expect("PouchDB pushes a design document", 200, remote("reader").get("_design/pouch"));
}

async function untilThere(db, id) {
  for (let tries = 0; tries < 200; tries++) {
    if ((await statusOf(db.get(id))) === 200) return true;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  return false;
}

async function withLivePouch() {
  const one = local("live-one");
  const two = local("live-two");
  const options = { live: true, retry: true };
  const syncs = [one.sync(remote("writer"), options), two.sync(remote("builder"), options)];
  await one.put({ _id: "live-1" });
  say("a live change arrives", await untilThere(two, "live-1"));
  await two.put({ _id: "live-2" });
  say("a live change arrives in the other direction", await untilThere(one, "live-2"));
  const reading = local("live-reading");
  syncs.push(reading.replicate.from(remote("reader"), options));
  await one.put({ _id: "live-3" });
  say("a live change arrives at a reader", await untilThere(reading, "live-3"));
  for (const sync of syncs) sync.cancel();
}

await withNano();
await withPouch();
await withLivePouch();
process.exit(0);
