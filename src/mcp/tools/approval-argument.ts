/** The argument by which a tool is told that somebody has approved its call. */

import { readText } from "../../json/members.ts";
import type { Schema } from "../../query/kind.ts";
import { argumentsNamed } from "./call-arguments.ts";
import type { ToolDefinition } from "./definitions.ts";

const NAME = "approval";
const key = Buffer.from(`"${NAME}"`);

/** Arguments without an approval's id, and that. */
interface ApprovalArgument {
  readonly arguments: Buffer;
  readonly approval?: string;
}

/**
 * Takes the member `approval` out of a call's arguments, which are then the bytes of the call that
 * asked for it. What is no text stays, to be refused.
 */
export async function takeApproval(args: Buffer): Promise<ApprovalArgument> {
  // Few calls have one, and this tells at once.
  if (!args.includes(key)) return { arguments: args };
  const value = (await argumentsNamed(args, [NAME])).get(NAME);
  const approval = readText(value);
  if (value === undefined || approval === undefined) return { arguments: args };
  const start = args.lastIndexOf(key, value.byteOffset - args.byteOffset - 1);
  const end = value.byteOffset - args.byteOffset + value.length;
  const isKey = /^\s*:\s*$/.test(args.toString("latin1", start + key.length, end - value.length));
  if (start < 0 || !isKey) return { arguments: args };
  const [before, behind] = [neighbour(args, start - 1, -1), neighbour(args, end, 1)];
  const [from, to] =
    args[before] === comma ? [before, end] : [start, args[behind] === comma ? behind + 1 : end];
  return { arguments: Buffer.concat([args.subarray(0, from), args.subarray(to)]), approval };
}

const comma = 0x2c;
/** What JSON takes for white space (RFC 8259, section 2). */
const space: ReadonlySet<number | undefined> = new Set([0x20, 0x09, 0x0a, 0x0d]);

/** Where the next byte is that is no white space. */
function neighbour(bytes: Buffer, at: number, step: 1 | -1): number {
  let next = at;
  while (space.has(bytes[next])) next += step;
  return next;
}

function propertiesOf({ properties }: Schema): object {
  return typeof properties === "object" && properties !== null ? properties : {};
}

/** A tool as it is shown to who may need an approval: its answer can also say that one is pending. */
export function withApproval<Tool extends ToolDefinition>(definition: Tool): Tool {
  const { inputSchema, outputSchema } = definition;
  const description = "The id of an approval of this very call, once it was given.";
  const properties = { ...propertiesOf(inputSchema), [NAME]: { type: "string", description } };
  const { required: _, ...open } = outputSchema ?? {};
  return {
    ...definition,
    inputSchema: { ...inputSchema, properties },
    outputSchema: outputSchema && open,
  };
}
