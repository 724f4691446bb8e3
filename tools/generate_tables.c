/*
 * What was measured on real coding agents; see generate.c for the source and the meaning.
 */
#include "tools/generate.h"

#define TABLE(name)                                                                                \
    const struct kvt_quantiles name = {name##_points,                                              \
                                       sizeof(name##_points) / sizeof(name##_points[0])}
#define POINTS(name) static const struct kvt_quantile name##_points[]

/* Length of the start that sessions share with others. */
POINTS(kvt_generate_system_tokens) = {
    {0, 7616},       {50000, 9280},   {100000, 9536},  {200000, 10944}, {300000, 12224},
    {500000, 12544}, {600000, 12736}, {700000, 14592}, {900000, 15488}, {1000000, 21056}};
TABLE(kvt_generate_system_tokens);

/* First prompts without the shared start: of new conversations (the lower 55 of a hundred), and of
 * those that go on from an older one. */
POINTS(kvt_generate_fresh_tokens) = {{0, 351},       {18000, 520},    {91000, 2517},
                                     {182000, 3208}, {364000, 4256},  {545000, 6220},
                                     {727000, 7735}, {909000, 11014}, {1000000, 20000}};
TABLE(kvt_generate_fresh_tokens);

POINTS(kvt_generate_resumed_tokens) = {{0, 20000},       {111000, 49551},  {333000, 76274},
                                       {556000, 126123}, {778000, 248539}, {889000, 366418},
                                       {956000, 542954}, {978000, 701425}, {1000000, 818438}};
TABLE(kvt_generate_resumed_tokens);

/* First prompts of sub-agents without the start that all of them share. */
POINTS(kvt_generate_task_tokens) = {{0, 74},        {200000, 196},  {500000, 1400},
                                    {800000, 2441}, {900000, 4435}, {1000000, 7985}};
TABLE(kvt_generate_task_tokens);

POINTS(kvt_generate_output_tokens) = {
    {0, 1},         {10000, 58},    {50000, 87},    {100000, 104},  {200000, 125},  {300000, 147},
    {400000, 174},  {500000, 213},  {600000, 271},  {700000, 362},  {800000, 513},  {900000, 898},
    {950000, 1513}, {980000, 2706}, {990000, 3800}, {995000, 5101}, {1000000, 8216}};
TABLE(kvt_generate_output_tokens);

/* What a turn adds beside the last output: tool output, or what the user says. */
POINTS(kvt_generate_result_tokens) = {
    {0, 0},         {100000, 0},     {200000, 26},    {300000, 72},    {400000, 169},
    {500000, 285},  {600000, 443},   {700000, 727},   {800000, 1273},  {900000, 2788},
    {950000, 5524}, {980000, 10235}, {990000, 15803}, {995000, 23348}, {1000000, 50000}};
TABLE(kvt_generate_result_tokens);

/* Turns of a session, in thousandths of the mean. */
POINTS(kvt_generate_turns_permille) = {
    {0, 42},        {10000, 56},    {50000, 70},    {100000, 98},   {200000, 211},  {300000, 309},
    {400000, 436},  {500000, 619},  {600000, 830},  {700000, 1111}, {800000, 1561}, {900000, 2391},
    {950000, 3249}, {980000, 4304}, {990000, 4923}, {995000, 5781}, {1000000, 7229}};
TABLE(kvt_generate_turns_permille);

/* Turns of a sub-agent, in thousandths of the mean of the main sessions. */
POINTS(kvt_generate_sub_turns_permille) = {
    {0, 57},       {50000, 57},   {100000, 71},  {200000, 85},  {300000, 142},
    {500000, 156}, {700000, 171}, {800000, 199}, {900000, 256}, {1000000, 341}};
TABLE(kvt_generate_sub_turns_permille);

POINTS(kvt_generate_tool_delay_ms) = {{0, 0},
                                      {10000, 2000},
                                      {50000, 3000},
                                      {100000, 4000},
                                      {200000, 5000},
                                      {300000, 6000},
                                      {400000, 7000},
                                      {500000, 8000},
                                      {600000, 11000},
                                      {700000, 15000},
                                      {800000, 26000},
                                      {900000, 71000},
                                      {950000, 151000},
                                      {980000, 378000},
                                      {990000, 619000},
                                      {995000, 1223000},
                                      {1000000, 3027000}};
TABLE(kvt_generate_tool_delay_ms);

POINTS(kvt_generate_stream_delay_ms) = {
    {0, 0},           {10000, 10000},    {50000, 15000},    {100000, 19000},   {200000, 31000},
    {300000, 44000},  {400000, 64000},   {500000, 94000},   {600000, 151000},  {700000, 240000},
    {800000, 486000}, {900000, 1354000}, {950000, 3053000}, {980000, 3316000}, {1000000, 6500000}};
TABLE(kvt_generate_stream_delay_ms);

POINTS(kvt_generate_answer_delay_ms) = {{0, 0},
                                        {10000, 2000},
                                        {50000, 4000},
                                        {100000, 6000},
                                        {200000, 32000},
                                        {300000, 84000},
                                        {400000, 141000},
                                        {500000, 216000},
                                        {600000, 360000},
                                        {700000, 680000},
                                        {800000, 1187000},
                                        {900000, 2785000},
                                        {950000, 5084000},
                                        {980000, 19242000},
                                        {1000000, 43678000}};
TABLE(kvt_generate_answer_delay_ms);

/* How much of the prompt an edit throws away, in thousandths. */
POINTS(kvt_generate_lost_permille) = {{0, 0},        {200000, 3},    {300000, 442},  {400000, 703},
                                      {500000, 838}, {600000, 883},  {700000, 901},  {800000, 922},
                                      {900000, 972}, {950000, 1000}, {1000000, 1000}};
TABLE(kvt_generate_lost_permille);
