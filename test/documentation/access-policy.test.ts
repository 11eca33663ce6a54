/** The worked example of docs/access-policy.md: what it shows is what the command says. */
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { install } from "../commands/kit.ts";

const document = readFileSync(new URL("../../docs/access-policy.md", import.meta.url), "utf8");
const [policy = "", expectations = ""] = Array.from(
  document.matchAll(/^```toml\n(.*?)^```$/gms),
  ([, block = ""]) => block,
);

t.test("the policy of the guide meets its expectations, and a wider one does not", async (t) => {
  const gatehouse = install(t);
  const at = (name: string) => path.join(gatehouse.home, name);
  writeFileSync(at("access.toml"), policy);
  writeFileSync(at("policy.test.toml"), expectations);
  const run = () =>
    gatehouse.run("access test", undefined, at("policy.test.toml"), "--file", at("access.toml"));
  t.match(await run(), { code: 0, stdout: "4 expectations, 0 differ\n", stderr: "" });

  writeFileSync(at("before.toml"), policy);
  writeFileSync(at("access.toml"), policy.replace('require_where = ["id"]\n', ""));
  const { code, stdout } = await run();
  t.equal(code, 1);
  t.ok(document.includes(stdout.replaceAll(`${gatehouse.home}/`, "")), stdout);
  const diff = await gatehouse.run("access diff", undefined, at("before.toml"), at("access.toml"));
  t.equal(diff.stdout, 'rita on main.tickets: require_where ["id"] to none\n');
});

t.test("the guide names every command about access and every option of grant", async (t) => {
  const gatehouse = install(t);
  const help = await gatehouse.run("access --help");
  const commands = Array.from(help.stdout.matchAll(/^ {2}(\w+) \[options\]/gm), ([, name]) => name);
  t.ok(commands.length >= 8, commands.join());
  for (const name of commands) t.match(document, `access ${name}`);
  const grant = await gatehouse.run("access grant --help");
  for (const [option] of grant.stdout.matchAll(/--(?!config|help)[a-z-]+/g))
    t.match(document, option);
});
