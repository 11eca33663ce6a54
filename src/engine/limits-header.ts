import { z } from "zod";
import { keepDigits } from "../json/document.ts";
import { limitsHeader, type QueryLimit } from "./limits.ts";
import { EngineRefusal } from "./refusal.ts";

const literal = z.union([z.string(), z.boolean(), z.int(), z.bigint()]);

export const bytewiseShape = z.strictObject({
  database: z.string(),
  table: z.string(),
  bytewise: z.array(z.string()),
  written: z
    .array(
      z.union([
        z.strictObject({
          column: z.string(),
          cmp: z.enum(["=", "!=", ">", ">=", "<", "<="]),
          value: literal,
        }),
        z.strictObject({ column: z.string(), cmp: z.literal("IN"), value: z.array(literal) }),
      ]),
    )
    .optional(),
});

export const limitShape = z.strictObject({
  elements: z.array(z.int().min(0)).optional(),
  changes: z.int().min(0).optional(),
  rows: z.int().min(0).optional(),
  columns: z.array(z.string()).optional(),
  touched: z.union([z.literal("tell"), z.string().regex(/^[0-9a-f]{64}$/)]).optional(),
});

const limitsShape = z.array(z.union([limitShape, bytewiseShape]));

/** @throws EngineRefusal `invalid_value` for a malformed header */
export function readLimits(header: string | string[]): readonly QueryLimit[] {
  try {
    return limitsShape.parse(JSON.parse(String(header), keepDigits));
  } catch {
    throw new EngineRefusal("invalid_value", `The header ${limitsHeader} is malformed`);
  }
}
