import type { Place } from "../remote/place.ts";
import type { MysqlSession } from "./session.ts";

/** A database of MySQL as statements reach it. */
export type MysqlPlace = Place<MysqlSession>;
