import { writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { grant } from "../access/kit.ts";
import { install, people } from "./kit.ts";

t.test("config check --json tells scripts all that it finds, also of a broken file", async (t) => {
  const gatehouse = install(t, people + grant("ghost", "main", "ReadOnly"));
  const { home } = gatehouse;
  const check = async () => {
    const { code, stdout, stderr } = await gatehouse.run("config check --json");
    return { code, stderr, ...JSON.parse(stdout) };
  };
  t.match(await check(), {
    ...{ code: 0, stderr: "", ok: true, errors: [] },
    warnings: ["there are grants for ghost, but no record"],
    parts: [
      { part: "configuration", state: "ok", text: `${home}/gateway.toml` },
      { part: "signing keys", state: "absent", text: /made by the next start/ },
      { part: "access file", state: "ok", text: /3 users, 5 grants/ },
      { part: "revocations", state: "absent" },
    ],
  });
  writeFileSync(path.join(home, "revocations"), "nonsense\n", { mode: 0o600 });
  t.match(await check(), { ...{ code: 1, stderr: "", ok: false }, errors: [/revocations:1: is/] });
  writeFileSync(path.join(home, "gateway.toml"), "[server]\nport = 70000\nhots = 1\n");
  t.match(await check(), { code: 1, errors: [/toml:2: server\.port/, /toml:3: /], parts: [] });
});

t.test("config check judges the URL of a database that does not answer", async (t) => {
  const gatehouse = install(t);
  const withUrl = (url: string) => {
    const file = path.join(gatehouse.home, "gateway.toml");
    writeFileSync(file, `[upstream]\nurl = "${url}"\n`, { mode: 0o600 });
    return gatehouse.run("config check");
  };
  const good = await withUrl("postgres://ann:hunter2@db.example/shop?connect_timeout=3");
  t.match(good, { code: 0, stdout: "database       ok  ann on db.example:5432 (its URL)\n" });
  const wrong: [string, RegExp][] = [
    ["postgres://ann:hunter2@db/shop?sslmod=x", /upstream\.url: .* parameter "sslmod"; known are/],
    ["mysql://ann:hunter2@db/shop", /upstream\.url: .* names a database/],
  ];
  for (const [url, stderr] of wrong) {
    const result = await withUrl(url);
    t.match(result, { code: 1, stderr });
    t.notMatch(JSON.stringify([result, good]), /hunter2/);
  }
});
