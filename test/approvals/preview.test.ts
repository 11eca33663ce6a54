/** What an approver is shown, and that nothing else is changed. */
import t from "tap";
import { eventually } from "../kit/eventually.ts";
import { runWarm } from "../kit/warm-command.ts";
import { connectStateless } from "../mcp/clients.ts";
import { careful, idIn, openCareful, orders, removal } from "./kit.ts";

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
  const { stdout, code } = await runWarm(gateway.home, ["approvals", "show", id]);
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

t.test("an approver is shown whole rows, whatever the asker has answered", async (t) => {
  const id = idIn(await ask(bot, { Delete: { ...removal.Delete, returning: ["id"] } }));
  const shown = await run("show", id);
  t.match(shown, { preview: { affected: 12, before: { 0: { id: 0, state: "old" } } } });
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

t.test("`audit --denied` finds what the engine denied by a limit of the caller", async (t) => {
  const more = careful("max_changes = 2\nmax_rows = 1");
  const limited = await openCareful(t, { more, config: '[audit]\nfile = "audit.log"\n' });
  const { ask, run, bot, root, gateway } = limited;
  const first = { column: "id", cmp: "<", value: 2 };
  const change = { ...orders, set: { state: "x" }, where: first };
  const all = { ...change, where: null };
  t.match(await ask(bot, { Update: all }), { status: 409 });
  t.match(await ask(bot, { Update: { ...change, returning: ["id"] } }), { status: 409 });
  const mcp = await connectStateless(t, `${gateway.url}/mcp`, bot);
  t.match(await mcp.call("update", all), { isError: true, text: /too_many_changes/ });
  const remove = { Delete: { ...orders, where: { column: "id", cmp: "=", value: 7 } } };
  const id = idIn(await ask(bot, remove));
  await run("show", id);
  await run("approve", id);
  t.equal((await ask(root, remove)).status, 200);
  t.match(await ask(bot, remove, id), stale);
  let found: unknown[] = [];
  await eventually("all denials are written", async () => {
    const { stdout } = await runWarm(gateway.home, ["audit", "--denied", "--json"]);
    found = stdout
      .split("\n")
      .filter(Boolean)
      .map((line): unknown => JSON.parse(line));
    return found.length === 5;
  });
  const denied = { level: "warn", user: "bot", decision: "deny" };
  t.match(found, [
    { ...denied, via: "query", reason: "too_many_changes", status: 409 },
    { ...denied, via: "query", reason: "too_many_rows", status: 409 },
    { ...denied, via: "mcp", reason: "too_many_changes" },
    { ...denied, reason: "approval_required", status: 202 },
    { ...denied, reason: "approval_stale", approval: id, status: 409 },
  ]);
});
