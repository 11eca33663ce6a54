import { randomUUID } from "node:crypto";
import {
  isJSONRPCResultResponse,
  type JSONRPCRequest,
  type JSONRPCResponse,
} from "@modelcontextprotocol/client";
import { z } from "zod";
import { runAtOnce } from "../../cooperative-scheduling.ts";
import { readMembers } from "../../json/members.ts";
import type { McpMessage } from "../message.ts";
import { encodeHeaderValue } from "../protocol-headers.ts";

/** An argument of a tool that its server wants as a header too. */
interface HeaderDeclaration {
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

/** Sends a request and waits for its answer. */
export type SendRequest = (
  request: JSONRPCRequest,
  signal: AbortSignal,
  headers?: Readonly<Record<string, string>>,
) => Promise<JSONRPCResponse>;

/** Pages of a list of tools that are asked for at most. */
const MOST_PAGES = 64;

const toolList = z.looseObject({
  tools: z.array(z.looseObject({ name: z.string(), inputSchema: z.unknown().optional() })),
  nextCursor: z.string().optional(),
});

/** A result, as the library has it. */
type Result = Readonly<Record<string, unknown>>;

function valueAt(value: unknown, path: readonly string[]): unknown {
  let found = value;
  for (const key of path) {
    const members = membersOf(found) ?? {};
    found = Object.hasOwn(members, key) ? members[key] : undefined;
  }
  return found;
}

/** A value as a header has it; undefined for one that no header may have. */
function headerText(value: unknown): string | undefined {
  if (typeof value === "string") return encodeHeaderValue(value);
  if (typeof value === "boolean") return String(value);
  if (typeof value !== "number") return undefined;
  return Number.isInteger(value) && !Number.isSafeInteger(value) ? undefined : String(value);
}

/** Which arguments of which tools go up as `Mcp-Param-*` headers too, as far as lists have told. */
export class ToolHeaders {
  readonly #declarations = new Map<string, readonly HeaderDeclaration[]>();
  readonly #leftOut = new Set<string>();
  readonly #onError: (error: unknown) => void;

  /** @param onError told once of each tool whose declarations break the rules */
  constructor(onError: (error: unknown) => void) {
    this.#onError = onError;
  }

  /**
   * Learns from the answer of a `tools/list`.
   *
   * @returns the answer without the tools that nobody could call over HTTP
   */
  learn(result: Result): Result {
    const { data } = toolList.safeParse(result);
    if (data === undefined) return result;
    const usable = data.tools.filter(({ name, inputSchema }) => this.#note(name, inputSchema));
    return usable.length === data.tools.length ? result : { ...result, tools: usable };
  }

  /** The headers that a call needs besides the usual ones. */
  of({ method, name, protocolVersion, arguments: args }: McpMessage): Record<string, string> {
    const isCall = method === "tools/call" && protocolVersion !== undefined;
    const declared = isCall ? this.#declarations.get(name ?? "") : undefined;
    const given =
      declared === undefined || args === undefined ? undefined : runAtOnce(readMembers(args));
    const entries = (declared ?? []).flatMap(({ path: [first = "", ...rest], header }) => {
      const bytes = given?.get(first);
      const value: unknown = bytes === undefined ? undefined : JSON.parse(bytes.toString("utf8"));
      const text = headerText(valueAt(value, rest));
      return text === undefined ? [] : [[`Mcp-Param-${header}`, text] as const];
    });
    return Object.fromEntries(entries);
  }

  /**
   * Asks for the list of tools and learns from it.
   *
   * @param call the call for which this is done; its client and version are told again
   */
  async relearn(send: SendRequest, { params }: JSONRPCRequest, signal: AbortSignal) {
    const { progressToken: _, ..._meta } = params?._meta ?? {};
    let cursor: string | undefined;
    for (let page = 0; page < MOST_PAGES; page++) {
      const place = cursor === undefined ? {} : { cursor };
      const list = { jsonrpc: "2.0", id: randomUUID(), method: "tools/list" } as const;
      const answer = await send({ ...list, params: { ...place, _meta } }, signal);
      if (!isJSONRPCResultResponse(answer)) return;
      this.learn(answer.result);
      cursor = toolList.safeParse(answer.result).data?.nextCursor;
      if (cursor === undefined) return;
    }
  }

  #note(name: string, inputSchema: unknown): boolean {
    try {
      this.#declarations.set(name, readHeaderDeclarations(inputSchema));
      return true;
    } catch (error) {
      this.#declarations.delete(name);
      const reason = error instanceof Error ? error.message : "its schema cannot be read";
      if (!this.#leftOut.has(name)) {
        this.#onError(new Error(`The tool ${name} is left out: ${reason}`));
      }
      this.#leftOut.add(name);
      return false;
    }
  }
}
