/** The commands of docs/tutorial.md, run in order against a PostgreSQL. */
import { userInfo } from "node:os";
import t from "tap";
import { sharedServer } from "../engine/postgres/kit.ts";
import { startGateway } from "../kit/gateway.ts";
import { blocksOf, readPage } from "../kit/page.ts";
import { runInShell } from "../kit/shell.ts";
import { callTool, refusalOf, textOf } from "./mcp.ts";

const { content, code } = readPage("tutorial.md");
const PASSWORD = "export PGPASSWORD='a long random password'";
const MARK = "-- end of a block --";

/** Ends the block with a pause if it edits the access file: an edit is in force within a second. */
function paused(code: string): string {
  return /gatehouse (?:user|access) (?:add|grant)/.test(code) ? `${code}\nsleep 1` : code;
}

/**
 * Masks what differs between runs. That rows were shown is audited up to a second later, which may
 * be after the tutorial reads the audit.
 */
function settled(output: string): string {
  return output
    .trim()
    .replace(/^.* approval_shown .*\n/m, "")
    .replaceAll(/[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, "<id>")
    .replaceAll(`${userInfo().username} (cli)`, "you (cli)")
    .replaceAll(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/g, "<time>");
}

const server = await sharedServer();
const database = await server.createDatabase();
for (const statements of code("sql")) await server.sql(statements, database);
const [toml = ""] = code("toml");
const config = toml.replace(/postgres:[^"]*/, server.url(database, "gateway"));
const gateway = await startGateway(t, { config });

t.test("the commands of the tutorial print what the tutorial shows", async (t) => {
  t.match(content, PASSWORD);
  const script = code("sh").map((code) => `${paused(code)}\necho '${MARK}'\n`);
  const commands = script.join("").replaceAll("http://127.0.0.1:8080", gateway.url);
  const output = await runInShell(gateway, `exec 2>&1\n${commands}`, {});
  const printed = output.split(MARK);
  const blocks = blocksOf(content);
  const shown = blocks.flatMap(({ language }, at) => {
    const next = blocks[at + 1];
    return language === "sh" ? [next?.language === "console" ? next.code : undefined] : [];
  });
  t.ok(shown.length > 6);
  for (const [at, expected] of shown.entries()) {
    const found = settled(printed[at] ?? "");
    if (expected !== undefined) t.equal(found, settled(expected));
    else t.notMatch(found, /gatehouse: |"error"/);
  }
});

t.test("tools obey the same limits as the queries of the tutorial", async (t) => {
  const issued = await runInShell(gateway, "gatehouse token issue helper 2>/dev/null", {});
  const call = (name: string, args: Readonly<Record<string, unknown>>) =>
    callTool(gateway, name, args, issued.trim());
  const orders = { database: "public", from: "orders", limit: 10 };
  const allowed = await call("select", { ...orders, columns: ["id", "status"] });
  t.match(textOf(allowed), /shipped/);
  t.equal(
    refusalOf(await call("select", { ...orders, columns: ["customer_id"] })),
    "column_denied",
  );
});
