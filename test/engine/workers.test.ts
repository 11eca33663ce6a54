import { join } from "node:path";
import { mock } from "node:test";
import { pino } from "pino";
import t from "tap";
import { openSqliteStore } from "../../src/engine/sqlite/store.ts";
import { eventually } from "../kit/eventually.ts";
import { childrenOf } from "../kit/process-info.ts";
import { temporaryDirectory } from "./kit.ts";

t.test("SQLite processes that are idle for a minute end, and an unused one waits", async (t) => {
  mock.timers.enable({ apis: ["setTimeout"] });
  t.teardown(() => mock.timers.reset());
  const before = childrenOf(process.pid);
  const processes = () => childrenOf(process.pid).filter((pid) => !before.includes(pid));
  const directory = join(temporaryDirectory(t), "data");
  const store = await openSqliteStore(directory, 30_000, pino({ level: "silent" }));
  t.teardown(() => store.close());
  const look = () => store.readSchema({ database: "main" }, new AbortController());
  await Promise.all([look(), look(), look()]);
  const used = processes();
  t.equal(used.length, 3);
  mock.timers.tick(60_000);
  mock.timers.reset();
  await eventually("they have ended", () => !processes().some((pid) => used.includes(pid)));
  t.equal(processes().length, 1);
  await look();
});
