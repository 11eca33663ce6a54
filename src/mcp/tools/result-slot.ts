import { randomUUID } from "node:crypto";
import type { CallToolResult } from "@modelcontextprotocol/server";
import type { ToolResult } from "./result.ts";

/**
 * Holds the structured content of a call's result while the protocol's library writes the answer
 * around it. The library gets a small object in its place: it would hold the whole several times,
 * and write it in one go.
 */
export class ResultSlot {
  readonly #mark = { [randomUUID()]: true };
  #structured: Buffer = Buffer.alloc(0);

  /** Takes a result, and gives what stands for it. */
  take({ text, structured }: ToolResult): CallToolResult {
    this.#structured = structured;
    return { content: [{ type: "text", text }], structuredContent: this.#mark };
  }

  /** The answer as the library wrote it, with the structured content in its place. */
  fill(answer: string): Buffer[] {
    const [before = "", ...after] = answer.split(JSON.stringify(this.#mark));
    if (after.length === 0) return [Buffer.from(before)];
    return [Buffer.from(before), this.#structured, Buffer.from(after.join(""))];
  }
}
