import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { openWalDatabase } from "../../src/files/wal-database.ts";

t.test("several may have it open, and see what the others write", (t) => {
  const file = path.join(t.testdir(), "state.sqlite");
  const [one, other] = [openWalDatabase(file, 100), openWalDatabase(file, 100)];
  one.exec("CREATE TABLE t (x); INSERT INTO t VALUES (1)");
  t.match(other.prepare("SELECT x FROM t").all(), [{ x: 1 }]);
  one.close();
  other.close();
  t.end();
});

t.test("one that cannot be used is named, with what to do", (t) => {
  const file = path.join(t.testdir(), "state.sqlite");
  writeFileSync(file, "this is no database, but long enough to be looked at as one".repeat(20));
  t.throws(() => openWalDatabase(file, 100), {
    message: `${file} cannot be opened (file is not a database): if its disk is full, or was when the gateway started, make room and start it again`,
  });
  t.end();
});

/** Opens each file whose name it is told, and tells what came of it. */
const opener = `
  const { openWalDatabase } = await import(${JSON.stringify(import.meta.resolve("../../src/files/wal-database.ts"))});
  process.on("message", (file) => {
    try {
      openWalDatabase(file, 60_000).close();
      process.send("opened");
    } catch (error) {
      process.send(String(error.cause));
    }
  });
  process.send("ready");
`;

t.test("processes that open a new one at the same moment all have it", async (t) => {
  const processes = Array.from({ length: 3 }, () =>
    spawn(process.execPath, ["--input-type=module", "--eval", opener], {
      stdio: ["ignore", "inherit", "inherit", "ipc"],
    }),
  );
  t.teardown(() => processes.map((one) => one.kill()));
  const heard = async (one: ChildProcess): Promise<string> => (await once(one, "message"))[0];
  await Promise.all(processes.map(heard));
  const directory = t.testdir();
  const outcomes = new Set<string>();
  for (let round = 0; round < 200; round++) {
    const answers = processes.map(heard);
    for (const one of processes) one.send(path.join(directory, `${round}.sqlite`));
    for (const outcome of await Promise.all(answers)) outcomes.add(outcome);
  }
  t.strictSame([...outcomes], ["opened"]);
});
