/** An argument of a tool that its server wants as a header too. */
export interface HeaderDeclaration {
  /** The keys that lead to its value in the call's arguments. */
  readonly path: readonly string[];
  /** The header's name behind `Mcp-Param-`. */
  readonly header: string;
}

const annotation = "x-mcp-header";
/** What a header's name is made of (RFC 9110, section 5.1). */
const token = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const primitives: ReadonlySet<unknown> = new Set(["string", "integer", "boolean"]);
/** Keywords of JSON Schema whose values are data. */
const dataKeywords: ReadonlySet<string> = new Set(["const", "default", "enum", "examples"]);
/** Keywords of JSON Schema whose values are schemas by name. */
const namingKeywords: ReadonlySet<string> = new Set([
  ...["properties", "patternProperties", "dependentSchemas", "$defs", "definitions"],
]);

/** The members of a JSON object; undefined for every other value. */
export function membersOf(value: unknown): Readonly<Record<string, unknown>> | undefined {
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  return isObject ? { ...value } : undefined;
}

function declarationOf(
  schema: Readonly<Record<string, unknown>>,
  path: readonly string[] | undefined,
): HeaderDeclaration[] {
  if (!Object.hasOwn(schema, annotation)) return [];
  const header = schema[annotation];
  if (path === undefined || path.length === 0) {
    throw new Error(`${annotation} stands where no argument is`);
  }
  if (typeof header !== "string" || !token.test(header)) {
    throw new Error(`${annotation} of ${path.join(".")} is no name of a header`);
  }
  if (primitives.has(schema.type)) return [{ path, header }];
  throw new Error(`${annotation} of ${path.join(".")} is not on a string, integer or boolean`);
}

/** @param path undefined where no chain of `properties` leads */
function visit(node: unknown, path: readonly string[] | undefined): HeaderDeclaration[] {
  if (Array.isArray(node)) return node.flatMap((element) => visit(element, undefined));
  const schema = membersOf(node);
  if (schema === undefined) return [];
  const below = Object.entries(schema).flatMap(([keyword, value]) => {
    if (keyword === annotation || dataKeywords.has(keyword)) return [];
    if (!namingKeywords.has(keyword)) return visit(value, undefined);
    return Object.entries(membersOf(value) ?? {}).flatMap(([name, member]) =>
      visit(member, keyword === "properties" && path !== undefined ? [...path, name] : undefined),
    );
  });
  return [...declarationOf(schema, path), ...below];
}

/**
 * The arguments that a tool's input schema wants as headers (MCP 2026-07-28, Streamable HTTP,
 * Custom Headers from Tool Parameters).
 *
 * @throws Error saying which rule the schema breaks; such a tool may not be called
 */
export function readHeaderDeclarations(inputSchema: unknown): readonly HeaderDeclaration[] {
  const declarations = visit(inputSchema, []);
  const names = new Set(declarations.map(({ header }) => header.toLowerCase()));
  if (names.size < declarations.length) throw new Error(`two arguments share one ${annotation}`);
  return declarations;
}
