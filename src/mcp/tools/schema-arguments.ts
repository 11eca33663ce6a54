import { BodyReader } from "../../query/body-reader.ts";
import { required } from "../../query/kind.ts";
import { ObjectShape } from "../../query/object-shape.ts";
import { plainName } from "../../query/values.ts";

/** What a tool that tells of the schema is asked about. */
export interface Asked {
  database: string;
  table: string;
}

const database = required(
  plainName<Asked>((asked, name) => {
    asked.database = name;
  }),
);
const table = required(
  plainName<Asked>((asked, name) => {
    asked.table = name;
  }),
);

/** The arguments that schema tools take, by what they are about. */
export const askedShapes = {
  everything: new ObjectShape<Asked>({}, "none"),
  database: new ObjectShape<Asked>({ database }),
  table: new ObjectShape<Asked>({ database, table }),
} as const;

/** Reads the arguments of a schema tool. @throws QueryRefused */
export function readAsked(args: Buffer, shape: ObjectShape<Asked>): Asked {
  const asked: Asked = { database: "", table: "" };
  const reader = new BodyReader(args);
  // As in a query, where the operation's name comes first.
  reader.path.push("Schema");
  try {
    shape.read(reader, asked);
  } catch (error) {
    throw reader.asRefusal(error);
  }
  return asked;
}
