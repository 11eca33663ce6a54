import { z } from "zod";
import { limitsHeader, type QueryLimit } from "./limits.ts";
import { EngineRefusal } from "./refusal.ts";

/** What the limits' header holds, as JSON. */
export const limitsShape = z.array(
  z.strictObject({
    elements: z.array(z.int().min(0)).optional(),
    changes: z.int().min(0).optional(),
    rows: z.int().min(0).optional(),
    columns: z.array(z.string()).optional(),
    touched: z.union([z.literal("tell"), z.string().regex(/^[0-9a-f]{64}$/)]).optional(),
  }),
);

/** Reads the limits' header. @throws EngineRefusal `invalid_value` for one that is not of its form */
export function readLimits(header: string | string[]): readonly QueryLimit[] {
  try {
    return limitsShape.parse(JSON.parse(String(header)));
  } catch {
    throw new EngineRefusal("invalid_value", `The header ${limitsHeader} is not of its form`);
  }
}
