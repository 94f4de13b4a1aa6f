//! Runs the commands that the scripts use, with the replies of Redis. Any other command is an error that names it.

use std::collections::{BTreeMap, VecDeque};

use super::keyspace::{Bytes, Keyspace, ScoreBound, ScoreBounds, StoredValue, number_from, number_text};

/// A command's reply.
#[derive(Debug, PartialEq)]
pub(super) enum Reply {
    Nothing,
    Number(i64),
    Text(Bytes),
    Okay,
    List(Vec<Reply>),
}

pub(super) fn call(keys: &mut Keyspace, arguments: &[Bytes]) -> Result<Reply, String> {
    let Some((name, args)) = arguments.split_first() else {
        return Err("ERR Please specify at least one argument for this redis.call() call".to_owned());
    };
    let name = String::from_utf8_lossy(name).to_ascii_uppercase();
    let Some(&(_, least, run)) = COMMANDS.iter().find(|(known, ..)| *known == name) else {
        return Err(format!("ERR unknown command '{name}'"));
    };
    if args.len() < least {
        return Err(format!("ERR wrong number of arguments for '{}' command", name.to_lowercase()));
    }
    run(keys, args)
}

type Command = fn(&mut Keyspace, &[Bytes]) -> Result<Reply, String>;

/// Each command: its name, the least number of its arguments, and its function.
const COMMANDS: &[(&str, usize, Command)] = &[
    ("TIME", 0, |keys, _| Ok(time(keys.now_us()))),
    ("INFO", 0, |keys, _| Ok(Reply::Text(format!("# Server\r\nrun_id:{}\r\n", keys.run_id).into_bytes()))),
    ("DEL", 1, |keys, args| Ok(count(args.iter().filter(|key| keys.remove(key)).count()))),
    ("EXISTS", 1, |keys, args| Ok(count(args.iter().filter(|key| keys.exists(key)).count()))),
    ("SET", 2, set),
    ("LLEN", 1, |keys, args| Ok(count(keys.list(&args[0])?.map_or(0, VecDeque::len)))),
    ("LINDEX", 2, lindex),
    ("LPUSH", 2, |keys, args| {
        keys.change_list(&args[0], |list| {
            args[1..].iter().for_each(|item| list.push_front(item.clone()));
            count(list.len())
        })
    }),
    ("RPUSH", 2, |keys, args| {
        keys.change_list(&args[0], |list| {
            args[1..].iter().for_each(|item| list.push_back(item.clone()));
            count(list.len())
        })
    }),
    ("LPOP", 1, |keys, args| pop(keys, args, VecDeque::pop_front)),
    ("RPOP", 1, |keys, args| pop(keys, args, VecDeque::pop_back)),
    ("LREM", 3, |keys, args| {
        let many = integer(&args[1])?;
        if keys.list(&args[0])?.is_none() {
            return Ok(Reply::Number(0));
        }
        let most =
            if many == 0 { usize::MAX } else { usize::try_from(many.unsigned_abs()).unwrap_or(usize::MAX) };
        keys.change_list(&args[0], |list| {
            let mut at: Vec<usize> = (0..list.len()).filter(|at| list[*at] == args[2]).collect();
            if many < 0 {
                at.reverse();
            }
            at.truncate(most);
            at.sort_unstable();
            for at in at.iter().rev() {
                list.remove(*at);
            }
            count(at.len())
        })
    }),
    ("HGET", 2, |keys, args| Ok(text(keys.hash(&args[0])?.and_then(|hash| hash.get(&args[1]))))),
    ("HMGET", 2, |keys, args| {
        let hash = keys.hash(&args[0])?;
        Ok(Reply::List(args[1..].iter().map(|field| text(hash.and_then(|hash| hash.get(field)))).collect()))
    }),
    ("HGETALL", 1, |keys, args| {
        let pairs = keys.hash(&args[0])?.into_iter().flatten();
        Ok(Reply::List(pairs.flat_map(|(field, value)| [text(Some(field)), text(Some(value))]).collect()))
    }),
    ("HSET", 3, |keys, args| {
        let fields = pairs("hset", &args[1..])?;
        let new = |hash: &mut BTreeMap<Bytes, Bytes>| {
            fields
                .map(|(field, value)| hash.insert(field.clone(), value.clone()))
                .filter(Option::is_none)
                .count()
        };
        keys.change_hash(&args[0], new).map(count)
    }),
    ("HDEL", 2, |keys, args| {
        keys.change_hash(&args[0], |hash| {
            count(args[1..].iter().filter(|field| hash.remove(*field).is_some()).count())
        })
    }),
    ("ZADD", 3, |keys, args| {
        let members = pairs("zadd", &args[1..])?
            .map(|(score, member)| Ok((number_from(score)?, member)))
            .collect::<Result<Vec<_>, String>>()?;
        keys.change_sorted(&args[0], |sorted| {
            count(members.iter().filter(|(score, member)| sorted.insert(member, *score)).count())
        })
    }),
    ("ZREM", 2, |keys, args| {
        keys.change_sorted(&args[0], |sorted| {
            count(args[1..].iter().filter(|member| sorted.remove(member)).count())
        })
    }),
    ("ZSCORE", 2, |keys, args| {
        let score = keys.sorted(&args[0])?.and_then(|sorted| sorted.score(&args[1]));
        Ok(score.map_or(Reply::Nothing, number))
    }),
    ("ZCOUNT", 3, |keys, args| {
        let bounds = bounds(&args[1], &args[2])?;
        Ok(count(keys.sorted(&args[0])?.map_or(0, |sorted| sorted.within(bounds).count())))
    }),
    ("ZREMRANGEBYSCORE", 3, |keys, args| {
        let bounds = bounds(&args[1], &args[2])?;
        keys.change_sorted(&args[0], |sorted| {
            let out: Vec<Bytes> = sorted.within(bounds).map(|(member, _)| member.clone()).collect();
            count(out.iter().filter(|member| sorted.remove(member)).count())
        })
    }),
    ("ZRANGEBYSCORE", 3, |keys, args| range(keys, &args[0], &args[1], &args[2], &args[3..], false)),
    ("ZREVRANGEBYSCORE", 3, |keys, args| range(keys, &args[0], &args[2], &args[1], &args[3..], true)),
];

fn time(now_us: i64) -> Reply {
    let part = |number: i64| Reply::Text(number.to_string().into_bytes());
    Reply::List(vec![part(now_us.div_euclid(1_000_000)), part(now_us.rem_euclid(1_000_000))])
}

fn set(keys: &mut Keyspace, args: &[Bytes]) -> Result<Reply, String> {
    let (mut only_new, mut expires_us) = (false, None);
    let mut options = args[2..].iter();
    while let Some(option) = options.next() {
        match option.to_ascii_uppercase().as_slice() {
            b"NX" => only_new = true,
            b"PX" => {
                let span = options.next().map(|ms| integer(ms)).transpose()?.filter(|ms| *ms > 0);
                let span = span.ok_or_else(|| "ERR invalid expire time in 'set' command".to_owned())?;
                expires_us = Some(keys.now_us().saturating_add(span.saturating_mul(1000)));
            }
            _ => return Err("ERR syntax error".to_owned()),
        }
    }
    if only_new && keys.exists(&args[0]) {
        return Ok(Reply::Nothing);
    }
    keys.put(&args[0], StoredValue::Flag, expires_us);
    Ok(Reply::Okay)
}

fn lindex(keys: &mut Keyspace, args: &[Bytes]) -> Result<Reply, String> {
    let at = integer(&args[1])?;
    let Some(list) = keys.list(&args[0])? else { return Ok(Reply::Nothing) };
    let at = if at < 0 { i64::try_from(list.len()).unwrap_or(i64::MAX) + at } else { at };
    Ok(text(usize::try_from(at).ok().and_then(|at| list.get(at))))
}

/// With a count, the reply is a list, unless the key does not exist.
fn pop(
    keys: &mut Keyspace,
    args: &[Bytes],
    end: fn(&mut VecDeque<Bytes>) -> Option<Bytes>,
) -> Result<Reply, String> {
    let most = args.get(1).map(|most| integer(most)).transpose()?;
    if most.is_some_and(|most| most < 0) {
        return Err("ERR value is out of range, must be positive".to_owned());
    }
    if keys.list(&args[0])?.is_none() {
        return Ok(Reply::Nothing);
    }
    keys.change_list(&args[0], |list| match most {
        None => end(list).map_or(Reply::Nothing, Reply::Text),
        Some(most) => Reply::List((0..most).map_while(|_| end(list).map(Reply::Text)).collect()),
    })
}

/// Reads `WITHSCORES` and `LIMIT offset count` in any order. A negative count means all members.
fn range(
    keys: &Keyspace,
    key: &[u8],
    least: &[u8],
    most: &[u8],
    options: &[Bytes],
    backwards: bool,
) -> Result<Reply, String> {
    let bounds = bounds(least, most)?;
    let (mut with_scores, mut skip, mut take) = (false, 0, usize::MAX);
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match option.to_ascii_uppercase().as_slice() {
            b"WITHSCORES" => with_scores = true,
            b"LIMIT" => {
                let (Some(offset), Some(count)) = (options.next(), options.next()) else {
                    return Err("ERR syntax error".to_owned());
                };
                // A negative offset selects no members, as in Redis.
                skip = usize::try_from(integer(offset)?).unwrap_or(usize::MAX);
                take = usize::try_from(integer(count)?).unwrap_or(usize::MAX);
            }
            _ => return Err("ERR syntax error".to_owned()),
        }
    }
    let Some(sorted) = keys.sorted(key)? else { return Ok(Reply::List(Vec::new())) };
    let members: Vec<_> = if backwards {
        sorted.within(bounds).rev().skip(skip).take(take).collect()
    } else {
        sorted.within(bounds).skip(skip).take(take).collect()
    };
    let mut items = Vec::new();
    for (member, score) in members {
        items.push(text(Some(member)));
        if with_scores {
            items.push(number(score));
        }
    }
    Ok(Reply::List(items))
}

fn bounds(least: &[u8], most: &[u8]) -> Result<ScoreBounds, String> {
    Ok(ScoreBounds { least: ScoreBound::parse(least)?, most: ScoreBound::parse(most)? })
}

fn pairs<'a>(
    command: &str,
    arguments: &'a [Bytes],
) -> Result<impl Iterator<Item = (&'a Bytes, &'a Bytes)> + use<'a>, String> {
    if arguments.len() % 2 == 1 {
        return Err(format!("ERR wrong number of arguments for '{command}' command"));
    }
    Ok(arguments.chunks_exact(2).map(|pair| (&pair[0], &pair[1])))
}

fn integer(text: &[u8]) -> Result<i64, String> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| "ERR value is not an integer or out of range".to_owned())
}

fn text(text: Option<&Bytes>) -> Reply {
    text.map_or(Reply::Nothing, |text| Reply::Text(text.clone()))
}

fn number(number: f64) -> Reply {
    Reply::Text(number_text(number).into_bytes())
}

fn count(number: usize) -> Reply {
    Reply::Number(i64::try_from(number).unwrap_or(i64::MAX))
}
