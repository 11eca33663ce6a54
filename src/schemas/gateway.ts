import { z } from "zod";
import { configurationSchema } from "../config/schema.ts";

/** gateway.toml as JSON Schema (Draft 4), out of the schema that the gateway reads it by. */
export function gatewaySchema(): object {
  const schema = z.toJSONSchema(configurationSchema, { io: "input", target: "draft-4" });
  return { ...schema, title: "gateway.toml of Gatehouse" };
}
