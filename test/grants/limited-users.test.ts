/** The table of docs/limited-users.md: each query is refused with its code, and its fix succeeds. */
import { readFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { load, make, project } from "./examples.ts";

const page = readFileSync(path.join(project, "docs/limited-users.md"), "utf8");
const rows = page
  .split("\n")
  .filter((line) => line.startsWith("| `{"))
  .map((line) => line.slice(2, -2).split(" | "))
  .map((cells) => cells.map((cell) => cell.replaceAll("`", "")));

t.test("each refused query of the page has its code, and its fix succeeds", async (t) => {
  const { site, as } = await load(t, "support-agent.toml");
  const columns = [
    { name: "id", type: "int", primary_key: true },
    { name: "customer", type: "int" },
    ...["region", "subject", "status", "phone"].map((name) => ({ name, type: "text" })),
  ];
  const tickets = { database: "main", table: "tickets" };
  const ticket = { region: "eu", customer: 1, subject: "s", status: "open", phone: "+49" };
  const values = [1, 2].map((id) => ({ id, ...ticket }));
  await site.admin({ CreateTable: { ...tickets, columns } });
  await site.admin({ Insert: { ...tickets, values } });
  await make(site, "customers", [{ id: 1, region: "eu", name: "Ann" }]);
  const ask = await as("rita");
  t.ok(rows.length > 8);
  for (const [refused = "", code, fixed = ""] of rows) {
    const denied = await ask(JSON.parse(refused));
    t.match(denied.body, { status: "error", code }, refused);
    t.equal(denied.status, code === "too_many_changes" ? 409 : 403, refused);
    const allowed = await ask(JSON.parse(fixed));
    t.match(allowed, { status: 200, body: { status: "success" } }, fixed);
  }
});
