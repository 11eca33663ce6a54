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
