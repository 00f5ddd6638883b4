CREATE TABLE worker_deaths (                                  -- the newest ones, a row for each run that is charged
    at     double precision NOT NULL,
    worker text             COLLATE "C" NOT NULL,
    run    bigint           NOT NULL,                          -- died with the worker before it made progress; 0: none did
    PRIMARY KEY (at, worker, run)
);
