import {
  existsSync,
  globSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import t from "tap";
import { eventually } from "./kit/eventually.ts";
import { type Answer, startGateway, temporaryHome } from "./kit/gateway.ts";
import { projectRoot, runCommand } from "./kit/process.ts";

/**
 * The recorded size of the source. A measure may exceed its record by one percent, at least by one.
 * `UPDATE_SIZE=1` lowers the record to what is measured; it never raises it.
 */
const recordFile = path.join(projectRoot, "test/source-size.json");
const record: Record<string, number> = JSON.parse(readFileSync(recordFile, "utf8"));
const update = process.env.UPDATE_SIZE === "1";

function check(name: string, measured: number): void {
  const recorded = record[name] ?? (update ? Number.POSITIVE_INFINITY : 0);
  if (update && measured < recorded) record[name] = measured;
  const most = recorded + Math.max(1, Math.floor(recorded / 100));
  t.ok(measured <= most, `${name}: ${measured}, recorded ${recorded}, at most ${most}`);
}

t.teardown(() => {
  if (update) writeFileSync(recordFile, `${JSON.stringify(record, undefined, 2)}\n`);
});

function linesOf(pattern: string): { files: number; lines: number } {
  const files = globSync(pattern, { cwd: projectRoot, exclude: ["**/node_modules/**"] });
  const lines = files.map(
    (file) => readFileSync(path.join(projectRoot, file), "utf8").split("\n").length - 1,
  );
  return { files: files.length, lines: lines.reduce((sum, count) => sum + count, 0) };
}

t.test("source and tests grow by less than one percent", async () => {
  const source = linesOf("src/**/*.ts");
  check("lines of src", source.lines);
  check("files of src", source.files);
  check("lines of test", linesOf("test/**/*.ts").lines);
});

t.test("a request runs through no more source files than recorded", async (t) => {
  const walkFile = path.join(temporaryHome(t), "walked.json");
  const probe = path.join(projectRoot, "test/kit/walk-probe.ts");
  const gateway = await startGateway(t, {
    env: { NODE_OPTIONS: `--import=${probe}`, WALK_FILE: walkFile },
  });
  const token = await gateway.login();
  const name = { name: "id", type: "int", primary_key: true };
  await gateway.query({ CreateTable: { database: "main", table: "t", columns: [name] } }, token);
  await gateway.addUser("rita", "ReadOnly");

  const query = { database: "main", from: "t", columns: ["*"], limit: 5 };
  const call = { name: "select", arguments: query };
  const message = { jsonrpc: "2.0", id: 1, method: "tools/call", params: call };
  let turn = 0;
  const requests: Record<string, () => Promise<Answer>> = {
    "POST /query": () => gateway.query({ Select: query }, token),
    "tool call": () =>
      gateway.request("/mcp", {
        method: "POST",
        headers: {
          authorization: `Bearer ${token}`,
          "content-type": "application/json",
          accept: "application/json, text/event-stream",
          "mcp-protocol-version": "2025-11-25",
        },
        body: JSON.stringify(message),
      }),
    "PUT /api/access": () => {
      const role = turn++ % 2 === 0 ? "ReadOnly" : "ReadWrite";
      return gateway.send("PUT", "/api/access/rita/main", { role }, token);
    },
  };

  async function walked(): Promise<string[]> {
    rmSync(walkFile, { force: true });
    gateway.service.child.kill("SIGUSR2");
    await eventually("the probe has written", () => existsSync(walkFile));
    return JSON.parse(readFileSync(walkFile, "utf8"));
  }

  for (const send of Object.values(requests)) for (let i = 0; i < 5; i++) await send();
  for (const [name, send] of Object.entries(requests)) {
    // A timer of the gateway may run in between, so the shortest of ten walks counts.
    const counts: number[] = [];
    for (let i = 0; i < 10; i++) {
      await walked();
      const { status, text } = await send();
      if (status !== 200) throw new Error(`${name}: ${text}`);
      counts.push((await walked()).length);
    }
    check(`files of ${name}`, Math.min(...counts));
  }
});

t.test("a grant on the command line loads no more modules than recorded", async (t) => {
  const home = temporaryHome(t);
  const coverage = path.join(home, "coverage");
  mkdirSync(coverage);
  await runCommand(home, ["user", "add", "rita", "--admin", "--no-password"]);
  const grant = ["access", "grant", "rita", "main", "ReadOnly"];
  const { code, stderr } = await runCommand(home, grant, { env: { NODE_V8_COVERAGE: coverage } });
  t.equal(code, 0, stderr);
  const modules = new Set<string>();
  for (const file of readdirSync(coverage)) {
    const { result } = JSON.parse(readFileSync(path.join(coverage, file), "utf8"));
    for (const { url } of result) if (/\/src\/.*\.ts$/.test(url)) modules.add(url);
  }
  check("modules of access grant", modules.size);
});
