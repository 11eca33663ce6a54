import { existsSync } from "node:fs";
import { join } from "node:path";
import { pino } from "pino";
import t from "tap";
import { startEngine } from "../../src/engine/engine.ts";
import { createTable, insert, query, selectAll, startOver, temporaryDirectory } from "./kit.ts";

const log = pino({ level: "silent" });

t.test("a directory that another engine has open is refused, and left as it is", async (t) => {
  const directory = temporaryDirectory(t);
  const first = await startOver(t, directory);
  await query(first.address, createTable("rows", { id: "int" }));
  const data = join(directory, "data");
  await t.rejects(startEngine({ url: `sqlite:${data}`, listen: "127.0.0.1:0", log }), {
    message: `Another engine has the databases in ${data} open: stop it first, or give this one a directory of its own.`,
  });
  t.match(await query(first.address, insert("rows", [{ id: 1 }])), { status: 200 });
});

t.test("an engine that is about to end is waited for", async (t) => {
  const directory = temporaryDirectory(t);
  const first = await startOver(t, directory);
  await query(first.address, createTable("rows", { id: "int" }));
  const second = startEngine({
    url: `sqlite:${join(directory, "data")}`,
    listen: "127.0.0.1:0",
    log,
  });
  t.match(await query(first.address, insert("rows", [{ id: 1 }])), { status: 200 });
  await first.close();
  const engine = await second;
  t.teardown(() => engine.close());
  t.same((await query(engine.address, selectAll("rows"))).body.data, [{ id: 1 }]);
});

t.test("a start that fails gives the directory back", async (t) => {
  const directory = temporaryDirectory(t);
  const url = `sqlite:${join(directory, "data")}`;
  await t.rejects(startEngine({ url, listen: `unix:${directory}`, log }), /is no socket/);
  const engine = await startEngine({ url, listen: "127.0.0.1:0", log });
  await engine.close();
});

t.test("what the directory is in, which may have been moved away, is not made anew", async (t) => {
  const parent = join(temporaryDirectory(t), "moved");
  const url = `sqlite:${join(parent, "data")}`;
  await t.rejects(startEngine({ url, listen: "127.0.0.1:0", log }), { code: "ENOENT" });
  t.notOk(existsSync(parent));
});
