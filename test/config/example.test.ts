import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { exampleFile, withReference } from "../../generate/configuration.ts";
import { renderValue } from "../../src/core/base/toml.ts";
import { schemaTables } from "../../src/core/config/issues.ts";
import { loadConfiguration } from "../../src/core/config/load.ts";
import { load, temporaryDirectory } from "./support.ts";

const committed = {
  example: readFileSync(new URL("../../gateway.toml.example", import.meta.url), "utf8"),
  page: readFileSync(new URL("../../docs/configuration.md", import.meta.url), "utf8"),
};

/** Every section with the keys that the schema has for it. */
const sections = schemaTables().map(({ name, description, keys }) => ({
  name,
  description,
  keys: keys.map(([key, member]) => ({ key, member })),
}));

t.test("example and page match the schema (node generate/configuration.ts --write)", async (t) => {
  t.equal(committed.example, exampleFile());
  t.equal(committed.page, withReference(committed.page));
});

t.test("every section and key has a description, and a default or an example", async (t) => {
  for (const { name, description, keys } of sections) {
    t.ok(description, name);
    for (const { key, member } of keys) {
      t.ok(member.description, `${name}.${key}`);
      t.ok(member.default !== undefined || member.examples !== undefined, `${name}.${key}`);
    }
  }
  t.ok(sections.length >= 8);
});

t.test("the example lists every key, and loads to the defaults", async (t) => {
  for (const { keys } of sections) {
    for (const { key } of keys) t.match(committed.example, new RegExp(`^#?${key} = `, "m"));
  }
  const env = { GATEHOUSE_HOME: join(temporaryDirectory(t), "home") };
  const loaded = load(t, committed.example, { env });
  const defaults = loadConfiguration({ cwd: "/", env });
  t.strictSame(loaded.configuration, defaults.configuration);
});

t.test("the example's commented-out lines are valid, unless they exclude others", async (t) => {
  const secret = join(temporaryDirectory(t), "introspection");
  writeFileSync(secret, "secret", { mode: 0o600 });
  const lines = committed.example.replaceAll(/^#(?! |:|$)/gm, "").split("\n");
  const text = lines
    .filter(
      (line) =>
        !/^(?:authorization_file|database_header|database_argument|jwks_file|private_key_file|urls) = /.test(
          line,
        ) &&
        !/^(?:statement_timeout|pool_size|postgres_databases|preset|header) = /.test(line) &&
        !/^(?:\[upstream\.credential\]|file = "\/run\/secrets\/upstream")$/.test(line),
    )
    .join("\n")
    // An issuer and its prefix may be in one of the two lists.
    .replace("realms/staff", "realms/partners")
    .replace('prefix = "staff"', 'prefix = "partners"')
    .replaceAll(/"\/run\/secrets\/(?:introspection|provider|hook)"/g, JSON.stringify(secret));
  const { configuration } = load(t, text);
  t.equal(configuration.routes.length, 1);
  t.equal(configuration.upstream.authorization, "Bearer ...");
  t.match(configuration.metrics.listen, /^127/);
});

/** Keys that are refused without a file or another key. */
const needOthers = new Set(["authorization_file", "pool_size", "postgres_databases", "preset"]);

t.test("every example value is valid", async (t) => {
  for (const { name, keys } of sections.filter(
    ({ name }) => !/^(?:routes|issuers)|\./.test(name),
  )) {
    for (const { key, member } of keys) {
      for (const example of member.examples ?? []) {
        const text = `${name}.${key} = ${renderValue(example)}\n`;
        if (!needOthers.has(key)) t.ok(load(t, text), text);
      }
    }
  }
});
