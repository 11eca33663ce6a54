/** What an approver is shown, and that nothing else is changed. */
import t from "tap";
import { runCommand } from "../kit/process.ts";
import { idIn, openCareful, orders, removal } from "./kit.ts";

const { ask, run, bot, root, count, gateway } = await openCareful(t);

const set = (id: number, state: string) => ({
  Update: { ...orders, set: { state }, where: { column: "id", cmp: "=", value: id } },
});
const stale = { status: 409, body: { code: "approval_stale" } };

t.test("the rows are shown, and nothing of that stays", async (t) => {
  const id = idIn(await ask(bot, removal));
  const shown = await run("show", id);
  t.match(shown, {
    query: JSON.stringify(removal),
    preview: { affected: 12, before: { length: 12, 0: { id: 0, state: "old" } }, after: [] },
  });
  t.equal(await count(), 15);
  const { stdout, code } = await runCommand(gateway.home, ["approvals", "show", id]);
  t.equal(code, 0);
  t.match(
    stdout,
    /Delete main.orders\n.*DELETE by the entry for main; approvers: who may grant on main/,
  );
  t.match(
    stdout,
    /\nPreview: 12 rows. Effects on other tables are not shown.\nbefore:\n {2}\{"id":0,/,
  );
  await run("deny", id);
});

t.test("a row that was changed, went or came since then is not what was approved", async (t) => {
  const insert = { Insert: { ...orders, values: [{ id: 20, state: "old" }] } };
  const remove = { Delete: { ...orders, where: { column: "id", cmp: "=", value: 20 } } };
  const meanwhile: [before: object, undo: object][] = [
    [set(3, "new"), set(3, "old")],
    [insert, remove],
  ];
  for (const [change, undo] of meanwhile) {
    const id = idIn(await ask(bot, removal));
    await run("show", id);
    await run("approve", id);
    const rows = await count();
    t.equal((await ask(root, change)).status, 200);
    const changed = await count();
    t.match(await ask(bot, removal, id), stale);
    t.equal(await count(), changed, "nothing was removed");
    t.match(await ask(bot, removal, id), { body: { code: "approval_used" } }, "it is used up");
    await ask(root, undo);
    t.equal(await count(), rows);
  }
});

t.test("other rows may change", async (t) => {
  const id = idIn(await ask(bot, removal));
  await run("show", id);
  await run("approve", id);
  await ask(root, set(13, "other"));
  t.match(await ask(bot, removal, id), { status: 200, body: { affected: 12 } });
  t.equal(await count(), 3);
});

t.test("who approves without having looked binds it to no rows", async (t) => {
  const query = { Delete: { ...orders, where: { column: "id", cmp: ">", value: 13 } } };
  const id = idIn(await ask(bot, query));
  await run("approve", id);
  await ask(root, set(14, "seen by nobody"));
  t.match(await ask(bot, query, id), { status: 200 });
});
