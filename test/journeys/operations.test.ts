/** The commands of docs/operations.md, run in order. */
import { readFileSync } from "node:fs";
import { userInfo } from "node:os";
import path from "node:path";
import t from "tap";
import { startGateway } from "../kit/gateway.ts";
import { projectRoot } from "../kit/process.ts";
import { columnsOf } from "../kit/queries.ts";
import { runInShell } from "../kit/shell.ts";

const page = readFileSync(path.join(projectRoot, "docs/operations.md"), "utf8");
const shown = Array.from(
  page.matchAll(/^```sh\n(.*?)^```$(?:\n\n```console\n(.*?)^```$)?/gms),
  ([, code = "", output = ""]) => ({ code, output }),
);
const MARK = "-- end of a block --";

/** Masks what differs between runs, and the widths of columns. */
function settled(output: string): string {
  return output
    .trim()
    .replaceAll(/[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, "<id>")
    .replaceAll(`${userInfo().username} (cli)`, "you (cli)")
    .replaceAll(/\S*gatehouse(?:\.js)? access/g, "gatehouse access")
    .replaceAll(/\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(?:\.\d{3})?Z?/g, "<time>")
    .replaceAll(/ +$/gm, "");
}

t.test("an operator's tasks print what the page shows", async (t) => {
  const config = '[audit]\nfile = "audit.log"\n';
  const gateway = await startGateway(t, { config });
  const admin = await gateway.login();
  const at = { database: "main", table: "payments" };
  const columns = columnsOf({ id: "int", amount: "decimal(10,2)" });
  const values = [{ id: 1, amount: 12.5 }];
  const made = { Batch: [{ CreateTable: { ...at, columns } }, { Insert: { ...at, values } }] };
  t.equal((await gateway.query(made, admin)).status, 200);
  const wait = "sleep 1";
  const script = shown.map(({ code }) => `${code}\necho '${MARK}'\n${wait}\n`).join("");
  const variables = { GATEHOUSE: gateway.url, ANAS_PASSWORD: "ana long password" };
  const output = await runInShell(gateway, `cd "$HOME"\nexec 2>&1\n${script}`, variables);
  const printed = output.split(`${MARK}\n`);
  t.ok(shown.length >= 6);
  for (const [at, { code, output }] of shown.entries()) {
    t.equal(settled(printed[at] ?? ""), settled(output), code);
  }
  const audit = readFileSync(path.join(gateway.home, "audit.log"), "utf8");
  t.match(audit, '"operation":"Delete"', "the approval was asked for");
});
