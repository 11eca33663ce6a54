/** A model requests a deletion, and an approver decides in the browser. */
import type { Page } from "playwright-core";
import t from "tap";
import { consoleConfig, signInBrowser } from "../console/kit.ts";
import { passwordOf } from "../journeys/staff.ts";
import { connectStateless, type ToolAnswer } from "../mcp/clients.ts";
import { launch } from "../oauth/chromium.ts";
import { careful, openCareful, orders, removeOne, step, stepsOf } from "./kit.ts";

const { config, url: consoleUrl } = await consoleConfig();
const { gateway, ask, bot, root, count } = await openCareful(t, {
  more: careful('approvers = ["dave"]'),
  config,
});
const old = { ...orders, where: { column: "state", cmp: "=", value: "old" } };

/** Reads the approval from a result. */
function approvalIn({ structured, text, isError }: ToolAnswer): { id: string; url: string } {
  const { approval } = structured ?? {};
  if (isError || typeof approval !== "object" || approval === null) throw new Error(text);
  const { id, url } = { id: "", url: "", ...approval };
  t.match(text, `approval ${id} is waiting for a decision at ${url}`);
  return { id, url };
}

async function decide(page: Page, url: string, rows: number, decision: "Approve" | "Deny") {
  await page.goto(url);
  await page.getByText(`${rows} rows would be deleted`).waitFor();
  const table = page.getByRole("table", { name: "Rows before" });
  t.equal(await table.getByRole("row").count(), rows + 1);
  const isApproved = decision === "Approve";
  if (isApproved) await page.getByLabel("Your password").fill(passwordOf("dave"));
  else await page.getByLabel("Reason").fill("the auditor still needs them");
  await page.getByRole("button", { name: decision }).click();
  await page
    .getByText(isApproved ? "for the rows shown" : "Denied", { exact: !isApproved })
    .waitFor();
}

const browser = await launch(t);
const page = await (await browser.newContext()).newPage();
await signInBrowser(page, consoleUrl, "dave");

t.test("an approval of twelve rows does not cover eleven, and is used only once", async (t) => {
  const mcp = await connectStateless(t, `${gateway.url}/mcp`, bot);
  const first = approvalIn(await mcp.call("delete", old));
  await decide(page, first.url, 12, "Deny");
  const denied = await mcp.call("delete", { ...old, approval: first.id });
  t.match(denied, { isError: true, text: /the auditor still needs them/ });
  const second = approvalIn(await mcp.call("delete", old));
  t.not(second.id, first.id);
  await decide(page, second.url, 12, "Approve");
  t.equal((await ask(root, removeOne(7))).status, 200, "another user deletes one");
  const stale = await mcp.call("delete", { ...old, approval: second.id });
  t.match(stale, { isError: true, text: /\(approval_stale\)$/ });
  t.equal(await count(), 14, "nothing was removed");

  const third = approvalIn(await mcp.call("delete", old));
  await decide(page, third.url, 11, "Approve");
  const same = { ...old, approval: third.id };
  const answers = await Promise.all(Array.from({ length: 6 }, () => mcp.call("delete", same)));
  const done = answers.filter(({ isError }) => !isError);
  t.match(done, [{ structured: { affected: 11 } }]);
  t.equal(done.length, 1, "of six calls at two workers, one runs");
  t.equal(await count(), 3);
  await step(gateway, third.id, "approval_used");
  t.strictSame(
    stepsOf(gateway, third.id).filter((name) => name !== "request"),
    ["approval_asked", "approval_shown", "approval_approved", "approval_used"],
  );
});

t.test("a client that can open pages shows the approval and continues by itself", async (t) => {
  await ask(root, { Insert: { ...orders, values: [70, 71].map((id) => ({ id, state: "old" })) } });
  let decision: "Approve" | "Deny" | undefined = "Approve";
  const shown: string[] = [];
  const mcp = await connectStateless(t, `${gateway.url}/mcp`, bot, async (url) => {
    shown.push(url);
    if (decision !== undefined) await decide(page, url, 2, decision);
    return decision === undefined ? "decline" : "accept";
  });
  decision = undefined;
  const { url } = approvalIn(await mcp.call("delete", old));
  t.strictSame(shown, [url], "a client that declines gets the usual result");
  decision = "Deny";
  t.match(await mcp.call("delete", old), { isError: true, text: /\(approval_denied\)$/ });
  decision = "Approve";
  t.match(await mcp.call("delete", old), { isError: false, structured: { affected: 2 } });
  t.equal(shown.length, 3);
  const mine = await ask(bot, removeOne(13));
  t.equal(mine.status, 202, "/query works without a page");
});
