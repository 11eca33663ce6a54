/** The page on TypeScript: its client runs, and the compiler finds what it says it finds. */
import path from "node:path";
import t from "tap";
import { noClients, Workplace } from "../journeys/installed-clients.ts";
import { compile } from "../kit/compile.ts";
import { startGateway } from "../kit/gateway.ts";
import { nodeCommand } from "../kit/node.ts";
import { readPage } from "../kit/page.ts";
import { projectRoot, runCommand } from "../kit/process.ts";

const { code } = readPage("typescript.md");
const [shown = "", client = "", start = "", nested = "", wrong = ""] = code("ts");
const program = start + nested;
const [createTables = ""] = code("json");
const printed = code("console").join("");

const gateway = await startGateway(t);
const token = await gateway.login();
const created = await gateway.query(createTables, token);
const env = { GATEHOUSE_TOKEN: token };
const types = await runCommand(gateway.home, ["types", "--url", gateway.url], { env });
const files = {
  "tables.ts": types.stdout,
  "gatehouse.ts": client,
  "program.ts": program.replace("http://127.0.0.1:8080", gateway.url),
};

t.test("the types of the tables are those that the page shows", async (t) => {
  t.match([created, types], [{ status: 200 }, { code: 0 }]);
  t.ok(types.stdout.endsWith(shown), types.stdout);
});

t.test("the client runs and prints what the page says", async (t) => {
  const workplace = new Workplace(t, env);
  await compile(t, files, workplace.directory);
  const [node, flags] = nodeCommand([path.join(workplace.directory, "program.ts")]);
  t.equal(await workplace.run(node, flags), printed);
});

t.test(
  "what is right compiles, and every wrong line is an error",
  { skip: noClients },
  async (t) => {
    const workplace = new Workplace(t);
    await workplace.run(path.join(workplace.directory, "node_modules/.bin/openapi-typescript"), [
      path.join(projectRoot, "docs/openapi.yaml"),
      "--output",
      path.join(workplace.directory, "openapi.d.ts"),
    ]);
    t.equal(await compile(t, files, workplace.directory), "");
    const lines = wrong.trim().split("\n");
    t.ok(lines.length > 5);
    const expected = lines.map((line) => `// @ts-expect-error\n${line}`).join("\n");
    const setup = program.split("\n").slice(0, 3).join("\n").replace(", QueryError", "");
    const all = { ...files, "wrong.ts": `${setup}\n${expected}\n` };
    t.equal(await compile(t, all, workplace.directory), "");
  },
);
