import { readdirSync, readFileSync } from "node:fs";
import AjvDraft4 from "ajv-draft-04";
import fc from "fast-check";
import t from "tap";
import { z } from "zod";
import { casesText } from "../../generate/query-cases.ts";
import { schemaFiles } from "../../generate/schemas.ts";
import { passwordHashForm } from "../../src/core/access/password-hash.ts";
import { parseToml, TomlSyntaxError } from "../../src/core/base/toml.ts";
import { configurationSchema } from "../../src/core/config/schema.ts";
import { casesFile } from "../../src/features/conformance/run.ts";
import { brokenFiles } from "../access/broken-files.ts";
import { documents } from "../access/documents.ts";
import { auth, mcp, others, query, routes, server, upstream } from "../config/broken.ts";

const root = new URL("../../", import.meta.url);
const ajv = new AjvDraft4.default({ strict: false });

function validatorOf(name: string) {
  const text = readFileSync(new URL(`schemas/${name}.schema.json`, root), "utf8");
  return ajv.compile(z.record(z.string(), z.unknown()).parse(JSON.parse(text)));
}

const isGateway = validatorOf("gateway");
const isAccess = validatorOf("access_control");

/** The values of a file; undefined if it is not TOML. */
function valuesOf(text: string): unknown {
  try {
    return parseToml(text, "file");
  } catch (error) {
    if (error instanceof TomlSyntaxError) return undefined;
    throw error;
  }
}

t.test("the JSON schemas are up to date (npm run docs)", (t) => {
  for (const { file, text } of schemaFiles)
    t.equal(readFileSync(file, "utf8"), text, file.pathname);
  t.end();
});

t.test("the conformance cases are up to date (npm run docs)", (t) => {
  t.equal(readFileSync(casesFile, "utf8"), casesText());
  t.end();
});

t.test("every example of gateway.toml names its schema and is valid", (t) => {
  const deployed = readdirSync(new URL("deploy/examples", root)).map((name) => `examples/${name}`);
  const names = ["gateway.toml.example", "deploy/gateway.toml", "deploy/replicas/gateway.toml"];
  for (const name of [...names, ...deployed.map((name) => `deploy/${name}`)]) {
    const place = new URL(name, root);
    const text = readFileSync(place, "utf8");
    const [, schema = ""] = /^#:schema (\S+)\n/.exec(text) ?? [];
    t.equal(new URL(schema, place).href, new URL("schemas/gateway.schema.json", root).href, name);
    t.ok(isGateway(valuesOf(text)), `${name}: ${ajv.errorsText(isGateway.errors)}`);
  }
  t.end();
});

t.test("the schema refuses every broken gateway.toml except for rules that need code", (t) => {
  let refused = 0;
  for (const { text } of [server, auth, upstream, query, routes, mcp, others].flat()) {
    const values = valuesOf(text);
    if (values === undefined) continue;
    const { error } = configurationSchema.safeParse(values);
    // A schema of this draft cannot restrict the names of free keys.
    const said = error?.issues.filter(({ code }) => code !== "custom" && code !== "invalid_key");
    if (said === undefined || said.length === 0) continue;
    t.notOk(isGateway(values), text);
    refused++;
  }
  t.ok(refused > 80, `${refused} of them`);
  t.end();
});

t.test("the schema accepts every valid access file", (t) => {
  fc.assert(
    fc.property(documents, ({ text }) => {
      if (!isAccess(valuesOf(text))) throw new Error(ajv.errorsText(isAccess.errors));
    }),
  );
  t.end();
});

t.test("the schema refuses every broken access file except for rules that need code", (t) => {
  const takesCode =
    /contains no user|this user already|this group already|in NFC|differs from this one|match the same|is allowed only|row_filter|with its offset|limits nothing|another user, or/;
  let refused = 0;
  for (const { text, reason } of brokenFiles) {
    const values = valuesOf(text);
    if (values === undefined || takesCode.test(reason.source)) continue;
    const [, hash = ""] = /password_hash = "(.*)"\n$/.exec(text) ?? [];
    if (passwordHashForm.test(hash)) continue;
    t.notOk(isAccess(values), text);
    refused++;
  }
  t.ok(refused > 60, `${refused} of them`);
  t.end();
});
