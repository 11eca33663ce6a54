import t from "tap";
import { grantOn } from "../../src/access/snapshot.ts";
import { grant } from "../access/kit.ts";
import { done, failed, install, people } from "./kit.ts";

t.test(
  "user remove takes the user and its grants, but not the last of those who run things",
  async (t) => {
    const gatehouse = install(t);
    t.strictSame(
      await gatehouse.run("user remove alice"),
      done("Removed alice and all its grants."),
    );
    t.notMatch(gatehouse.text, /alice/);
    t.match(gatehouse.text, /^# who may do what\n/);
    const sentence = "The last administrator cannot be removed, lowered or disabled";
    t.strictSame(await gatehouse.run("user remove root"), failed(1, sentence));
    t.ok(gatehouse.snapshot.users.has("root"));
    t.equal((await gatehouse.run("user remove root --force")).code, 0);
    t.notOk(gatehouse.snapshot.users.has("root"));
  },
);

t.test("the last Owner of a database is lowered and revoked only by force", async (t) => {
  const gatehouse = install(t, people + grant("alice", "sales", "Owner"));
  const sentence = "The last Owner of a database cannot be removed or lowered";
  for (const act of ["access grant alice sales DbAdmin", "access revoke alice sales"]) {
    t.strictSame(await gatehouse.run(act), failed(1, sentence));
  }
  t.equal((await gatehouse.run("access grant alice sales DbAdmin --force")).code, 0);
  t.equal(grantOn(gatehouse.snapshot, "alice", "sales")?.role, "DbAdmin");
  t.equal((await gatehouse.run("access revoke root * --force")).code, 0);
  t.notOk(gatehouse.snapshot.grants.has("root"));
});
