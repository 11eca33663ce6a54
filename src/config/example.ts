/**
 * Writes what is generated from the schema: gateway.toml.example, and the keys in
 * docs/configuration.md. `node src/config/example.ts --write` writes both.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { renderValue } from "../toml/values.ts";
import { withReference } from "./reference.ts";
import {
  allowedBy,
  descriptionOf,
  type SchemaNode,
  type SchemaTable,
  schemaTables,
} from "./schema-node.ts";

const longestLine = 98;

const introduction = `\
#:schema ./schemas/gateway.schema.json
#
# gateway.toml: the configuration of Gatehouse.
#
# Every key is here. An active line shows a default and may be left out; a line such as
# "#url = ..." shows a key that has no default. The file is taken from --config, else
# $GATEHOUSE_CONFIG, else ./gateway.toml, else gateway.toml in the service directory, which is
# $GATEHOUSE_HOME, else ~/.gatehouse. Relative paths are relative to this file.
#
# It is read at start, and again on SIGHUP and whenever it has changed; a key takes a restart unless
# it says otherwise. "gatehouse config check" says whether it would be accepted.
`;

const files = {
  example: new URL("../../gateway.toml.example", import.meta.url),
  page: new URL("../../docs/configuration.md", import.meta.url),
};

/** The text of gateway.toml.example. */
export function exampleFile(): string {
  return [introduction, ...schemaTables().map(section)].join("\n\n");
}

function section({ name, isArray, description, keys }: SchemaTable): string {
  const header = isArray ? `#[[${name}]]` : `[${name}]`;
  const blocks = keys.map(([key, member]) => keyBlock(key, member, isArray));
  return [`# ${description}`, header, "", blocks.join("\n")].join("\n");
}

/** In an array of tables, which has no elements by default, every line is a comment. */
function keyBlock(key: string, node: SchemaNode, isCommented: boolean): string {
  const isExample = node.default === undefined;
  const value = renderValue(isExample ? node.examples?.[0] : node.default);
  const line = `${isExample || isCommented ? "#" : ""}${key} = ${value}`;
  return [...comment(node), line, ""].join("\n");
}

function comment(node: SchemaNode): string[] {
  const parts = [descriptionOf(node)];
  if (node.type !== "boolean") parts.push(bounds(node));
  const example = node.examples?.[0];
  if (node.default !== undefined && example !== undefined) {
    parts.push(`Example: ${renderValue(example)}.`);
  }
  return wrapped(parts.join(" "));
}

function bounds(node: SchemaNode): string {
  if (node.type !== "integer") return `Allowed: ${allowedBy(node)}.`;
  const { minimum, maximum } = node;
  return minimum === maximum ? `Only ${minimum}.` : `From ${minimum} to ${maximum}.`;
}

function wrapped(text: string): string[] {
  const lines: string[] = [];
  let line = "#";
  for (const word of text.split(" ")) {
    if (line.length + word.length + 1 > longestLine) {
      lines.push(line);
      line = "#";
    }
    line += ` ${word}`;
  }
  return [...lines, line];
}

if (import.meta.main) {
  if (process.argv.includes("--write")) {
    writeFileSync(files.example, exampleFile());
    writeFileSync(files.page, withReference(readFileSync(files.page, "utf8")));
  } else {
    process.stdout.write(exampleFile());
  }
}
