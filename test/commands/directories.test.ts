import { chmodSync, mkdirSync, rmSync, statSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { directoryProblem } from "../../src/files/guarded.ts";
import { temporaryDirectory } from "../config/support.ts";
import { install } from "./kit.ts";

t.test("a directory is private unless group or others write it who are not meant to", (t) => {
  const directory = temporaryDirectory(t);
  const stats = statSync(directory);
  const problemOf = (mode: number, isOwn = true) => {
    stats.mode = 0o40000 | mode;
    stats.uid = (process.geteuid?.() ?? 0) + Number(!isOwn);
    return directoryProblem(directory, stats);
  };
  for (const mode of [0o700, 0o750, 0o755, 0o2770]) t.notOk(problemOf(mode), mode.toString(8));
  const remedy = `mend it with: chmod go-w ${directory}`;
  for (const mode of [0o775, 0o702, 0o777, 0o1777]) {
    t.equal(problemOf(mode), `its group or others may put another file there; ${remedy}`);
  }
  t.equal(problemOf(0o2777), `others may put another file there; ${remedy}`);
  t.notOk(problemOf(0o2777, false), "an empty volume of Kubernetes");
  t.end();
});

t.test("config check warns of directories in which others may replace keys or users", async (t) => {
  const gatehouse = install(t);
  const keys = path.join(gatehouse.home, "keys");
  mkdirSync(keys);
  chmodSync(keys, 0o777);
  chmodSync(gatehouse.home, 0o770);
  const { code, stderr } = await gatehouse.run("config check");
  t.equal(code, 0, "a warning, since a start goes on");
  t.strictSame(
    stderr.trimEnd().split("\n"),
    [gatehouse.home, keys].map(
      (directory) =>
        `warning: ${directory}: its group or others may put another file there; mend it with: chmod go-w ${directory}`,
    ),
  );
  rmSync(keys, { recursive: true });
});
