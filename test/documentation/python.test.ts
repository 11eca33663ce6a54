/** The page on Python: its client runs and prints what the page shows. */
import { spawn, spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import path from "node:path";
import { text } from "node:stream/consumers";
import t, { type Test } from "tap";
import { eventually } from "../kit/eventually.ts";
import { startGateway } from "../kit/gateway.ts";
import { listening } from "../kit/listening.ts";
import { readPage } from "../kit/page.ts";
import { cleanEnvironment } from "../kit/process.ts";
import { runInShell } from "../kit/shell.ts";

const { code } = readPage("python.md");
const [client = "", start = "", failure = "", stream = ""] = code("python");
const [setup = ""] = code("sh");
const [createTable = ""] = code("json");
const printed = code("console");
const connect = `${start.split("\norders")[0]}\n`;

function missing(what: string, code: string): string | false {
  return spawnSync("python3", ["-c", code]).status === 0 ? false : `${what} is not installed`;
}

const noPython = missing("python3", "");

const gateway = await startGateway(t);
const created = await gateway.query(createTable, await gateway.login());
const output = await runInShell(gateway, `${setup}\necho "token=$GATEHOUSE_TOKEN"`, {});
const [, token = ""] = /^token=(.+)$/m.exec(output) ?? [];
// A grant of the command line is in force within a second.
const read = { Select: { database: "main", from: "orders", columns: ["id"] } };
await eventually(
  "the grant is in force",
  async () => (await gateway.query(read, token)).status === 200,
);

/** Runs a program beside `gatehouse.py`. It fails with the errors of Python. */
async function run(t: Test, program: string, url = gateway.url): Promise<string> {
  writeFileSync(path.join(gateway.home, "gatehouse.py"), client);
  const file = path.join(gateway.home, "program.py");
  writeFileSync(file, program);
  const env = { GATEHOUSE_URL: url, GATEHOUSE_TOKEN: token };
  const python = spawn("python3", [file], {
    cwd: gateway.home,
    env: cleanEnvironment(gateway.home, env),
    stdio: ["ignore", "pipe", "pipe"],
  });
  const [stdout, stderr] = await Promise.all([text(python.stdout), text(python.stderr)]);
  t.equal(stderr, "");
  return stdout;
}

t.test("the commands of the page make a user and a token", async (t) => {
  t.equal(created.status, 200);
  t.match(output, /^shop can read and change every table of main\.$/m);
  t.ok(token.length > 100);
});

t.test("the client of the page prints what the page shows", { skip: noPython }, async (t) => {
  t.equal(await run(t, start + failure + stream), printed.slice(0, 3).join(""));
});

t.test("a stream that breaks between two chunks raises an error", { skip: noPython }, async (t) => {
  // A connection that ends with unread bytes is reset, which is another error.
  const server = createServer((request, response) => {
    request.resume().once("end", () => {
      response.write('{"a": 1}\n', () => response.socket?.end());
    });
  });
  const port = await listening(t, server);
  const program = `${connect}import http.client
try:
    print(list(db.rows({})))
except http.client.IncompleteRead:
    print("incomplete")
`;
  t.equal(await run(t, program, `http://127.0.0.1:${port}`), "incomplete\n");
});

t.test("an approved query runs when it is sent again", { skip: noPython }, async (t) => {
  const flags = "--require-approval DELETE";
  const granted = await runInShell(
    gateway,
    `gatehouse access grant shop main ReadWrite ${flags}`,
    {},
  );
  t.match(granted, /^shop can read and change every table of main/m);
  await eventually("the approval is required", async () =>
    (await gateway.get("/api/me", token)).text.includes("require_approval"),
  );
  const program = `${connect}
import subprocess
delete = {"database": "main", "table": "orders", "where": {"column": "id", "cmp": "=", "value": 1}}
try:
    db.query("Delete", delete)
except QueryError as error:
    print(error.status, error.code)
    id = error.answer["approval"]["id"]
subprocess.run(["programs/gatehouse", "approvals", "approve", id], check=True, capture_output=True)
print(db.query("Delete", delete, headers={"X-Gatehouse-Approval": id})["message"])
`;
  t.equal(await run(t, program), "202 approval_required\nDeleted 1 row\n");
});
