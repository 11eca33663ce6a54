/** A model requests approvals through the official clients; the operator decides on the command line. */
import t from "tap";
import { tokenOf } from "../journeys/staff.ts";
import { type AnyClient, connectEarlier, connectStateless } from "../mcp/clients.ts";
import { careful, openCareful, orders } from "./kit.ts";

const more = `${careful()}
[[boundaries]]
via = "mcp"
username = "wim"
require_approval = ["SELECT", "UPDATE"]
`;
const { gateway, ask, run, bot, root } = await openCareful(t, { more });
const url = `${gateway.url}/mcp`;

/** The id in a result that says that an approval is pending. */
async function idFrom(mcp: AnyClient, tool: string, args: Record<string, unknown>) {
  const { isError, text, structured } = await mcp.call(tool, args);
  const approval: unknown = structured?.approval;
  const id =
    typeof approval === "object" && approval !== null && "id" in approval
      ? String(approval.id)
      : "";
  const isPending =
    !isError && structured?.status === "pending" && text.includes(`"approval": "${id}"`);
  if (!isPending) throw new Error(text);
  return id;
}

t.test("a denied call returns the reason", async (t) => {
  const mcp = await connectEarlier(t, url, bot);
  const args = { ...orders, where: { column: "id", cmp: "=", value: 13 } };
  const id = await idFrom(mcp, "delete", args);
  t.match(await mcp.call("delete", { ...args, approval: id }), {
    isError: false,
    text: /^Not run yet: this call needs approval before .*call this tool again/,
    structured: { status: "pending", code: "approval_required", approval: { expires: /Z$/ } },
  });
  await run("deny", id, "--reason", "these are still needed");
  t.match(await mcp.call("delete", { ...args, approval: id }), {
    isError: true,
    text: "Denied: Approval denied: these are still needed; retrying does not help; tell the user the reason (approval_denied)",
  });
  const unknown = await mcp.call("delete", { ...args, approval: "x" });
  t.match(unknown, { text: /\(approval_not_found\)$/ });
});

t.test("an approval that is not a string is refused", async (t) => {
  const mcp = await connectEarlier(t, url, bot);
  const where = { column: "id", cmp: "=", value: 14 };
  for (const [approval, found] of [
    [null, "null"],
    [7, "a number"],
    [[], "an array"],
  ] as const) {
    const text = `Failed: approval: a string is expected, ${found} was found (wrong_type)`;
    t.match(await mcp.call("delete", { ...orders, where, approval }), { isError: true, text });
    const operations = [{ Delete: { ...orders, where } }];
    t.match(await mcp.call("batch", { operations, approval }), { isError: true, text });
  }
});

t.test("an approval for /mcp is not valid for /query", async (t) => {
  const mcp = await connectStateless(t, url, bot);
  const args = { ...orders, where: { column: "id", cmp: "=", value: 12 } };
  const id = await idFrom(mcp, "delete", args);
  await run("approve", id);
  const query = JSON.stringify({ Delete: args });
  t.match(await ask(bot, query, id), { status: 409, body: { code: "approval_mismatch" } });
  t.match(await mcp.call("delete", { approval: id, ...args }), { structured: { affected: 1 } });
});

t.test("a batch and a select can require approval", async (t) => {
  const bots = await connectStateless(t, url, bot);
  const operations = [{ Delete: { ...orders, where: { column: "id", cmp: "=", value: 60 } } }];
  const batch = await idFrom(bots, "batch", { operations });
  await run("approve", batch);
  t.match(await bots.call("batch", { operations, approval: batch }), { isError: false });

  const wim = await connectStateless(t, url, await tokenOf(gateway, "wim"));
  const select = { database: "main", from: "orders", columns: ["id"] };
  await wim.toolNames();
  const id = await idFrom(wim, "select", select);
  await run("approve", id);
  t.match(await wim.call("select", { ...select, approval: id }), {
    structured: { rows: { length: 14 } },
  });
  t.match(await wim.call("select", { ...select, approval: id }), { text: /\(approval_used\)$/ });
  const counted = await idFrom(wim, "count", { database: "main", from: "orders" });
  await run("deny", counted);
});

t.test("tools mention approvals only to users who need them", async (t) => {
  const schemaOf = async (token: string) => {
    const headers = {
      authorization: `Bearer ${token}`,
      "content-type": "application/json",
      accept: "application/json, text/event-stream",
    };
    const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/list" });
    const { text } = await gateway.request("/mcp", { method: "POST", headers, body });
    return text.includes("Approval id of");
  };
  t.equal(await schemaOf(root), false);
  t.equal(await schemaOf(bot), true);
});
